"""What a resumed run needs is on the disk in time: files, and the names of the folders that lead to them."""

import base64
import os
from pathlib import Path

import pytest

from phalanx.atomic import make_folder
from phalanx.launch.run_files import write_chunk
from phalanx.runs.rewind import put_aside_after
from tests.conftest import LEAN, train_digits


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were flushed to the disk, in order; a file under the name that it had then."""
    paths: list[str] = []
    flush = os.fsync

    def record(descriptor: int) -> None:
        flush(descriptor)
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_a_run_and_the_way_to_it(tmp_path: Path, synced: list[str]) -> None:
    run = train_digits(
        tmp_path / "new" / "run", *LEAN, "model.name=wrn10_1", "train.length=2st", "checkpoint.every=1st"
    )
    for folder in (tmp_path, tmp_path / "new", run, run / "checkpoints"):
        assert str(folder) in synced, f"the names in {folder}"
    for name in ("config.yaml", "summary.json", "best.json"):
        parts = [path for path in synced if Path(path).name.startswith(f".{name}.")]
        assert parts, name
    for name in ("model.safetensors", "state.json", "manifest.json", "events.jsonl"):
        assert any(Path(path).name == name for path in synced), name
    last = len(synced) - synced[::-1].index(str(run / "events.jsonl"))
    assert str(run) in synced[last:], "the name of events.jsonl"
    assert synced.count(str(run / "events.jsonl")) <= 4, "not after every step"


def test_what_is_brought_and_what_is_set_aside(tmp_path: Path, synced: list[str]) -> None:
    write_chunk(tmp_path, "code/a.py", 0, base64.b64encode(b"x").decode())
    write_chunk(tmp_path, "code/a.py", 1, "")
    assert synced[-1] == str(tmp_path / "code")
    assert str(tmp_path) in synced
    checkpoints = tmp_path / "checkpoints"
    for step in (4, 8):
        make_folder(checkpoints / f"step-{step:08d}")
    synced.clear()
    put_aside_after(checkpoints, 4, "now")
    assert synced == [str(checkpoints / "after-step-00000004-now"), str(checkpoints)]
