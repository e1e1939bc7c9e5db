"""Damaged files of a run are named in an error, whatever is in them."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE, read_events
from phalanx.runs.folder import RunFolder

STEP = {"t": 1.0, "kind": "stop", "step": 1, "reason": "x"}


@pytest.mark.parametrize(
    "change", [{"t": "x"}, {"step": None}, {"step": 10**400}, {"reason": 3}, {"kind": "resume", "saved_step": "x"}]
)
def test_events_with_wrong_values(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / EVENTS_FILE).write_text(json.dumps({**STEP, **change}) + "\n" + json.dumps(STEP) + "\n")
    with pytest.raises(UserError, match="line 1 is not an event"):
        read_events(tmp_path)


def test_an_event_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / EVENTS_FILE).write_text("[" * 100_000 + "\n")
    with pytest.raises(UserError, match="line 1 is not an event"):
        read_events(tmp_path)


def test_a_configuration_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be resumed"):
        RunFolder(tmp_path).layer()


@pytest.mark.parametrize(
    ("name", "content"), [("state.json", b"[]"), ("state.json", b"\xff"), ("model.safetensors", b"x")]
)
def test_a_checkpoint_whose_digests_were_made_right_again(name: str, content: bytes, tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"model": {"w": torch.zeros(2)}}, {})
    (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)


def test_a_manifest_that_is_a_pipe(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"model": {"w": torch.zeros(2)}}, {})
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)
