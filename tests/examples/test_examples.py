"""Every example runs as its README says: the commands are read from there."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.runs.checkpoint import path_of, steps_saved
from phalanx.runs.events import read_events
from tests.conftest import LEAN

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def commands(readme: Path) -> list[list[str]]:
    """The command lines in the README's sh blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", readme.read_text(), flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line]


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of an example, in which every command of its README was run."""
    folder: Path = tmp_path / request.param
    shutil.copytree(EXAMPLES / request.param, folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for words in commands(folder / "README.md"):
        run(folder, *words)
    return folder


def run(folder: Path, program: str, *words: str) -> None:
    assert program == "phalanx"
    lean = LEAN if words[0] == "train" else ()
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words, *lean], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


def last(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    assert summary["finished"]
    return dict(summary["last"])


def test_every_example_is_listed_and_tested() -> None:
    listed = re.findall(r"\]\((\w+)/README.md\)", (EXAMPLES / "README.md").read_text())
    tested = ["own_network", "own_data", "own_loss", "fine_tune", "imbalanced"]
    # several_labels runs in tests/roles/test_multi_label.py, with two workers
    assert sorted(listed) == FOLDERS == sorted([*tested, "several_labels"])


@pytest.mark.parametrize("project", ["own_network"], indirect=True)
def test_own_network(project: Path) -> None:
    assert last(project / "runs" / "own")["top1"] > 0.9
    assert (project / "runs" / "own" / "code" / "nets.py").is_file()
    (project / "nets.py").unlink()  # the run's own copy is enough
    run(project, "phalanx", "train", "--resume", "runs/own", "--epochs", "9")
    assert last(project / "runs" / "own")["step"] == 207


@pytest.mark.parametrize("project", ["own_data"], indirect=True)
def test_own_data(project: Path) -> None:
    assert last(project / "runs" / "shapes")["top1"] > 0.7
    start = next(record for record in read_events(project / "runs" / "shapes") if record["kind"] == "start")
    assert (start["classes"], start["train_samples"], start["val_samples"]) == (3, 600, 200)


@pytest.mark.parametrize("project", ["own_loss"], indirect=True)
def test_own_loss(project: Path) -> None:
    found = last(project / "runs" / "focal")
    assert found["metrics"]["balanced_accuracy"] > 0.8
    evaluated = json.loads((project / "runs" / "focal" / "eval" / "eval.json").read_text())
    assert evaluated["metrics"].keys() == found["metrics"].keys() == {"balanced_accuracy", "confidence"}


@pytest.mark.parametrize("project", ["fine_tune"], indirect=True)
def test_fine_tune(project: Path) -> None:
    from safetensors.torch import load_file

    first, second = project / "runs" / "first", project / "runs" / "second"
    assert last(second)["top1"] > 0.85
    best = json.loads((first / "checkpoints" / "best.json").read_text())["step"]
    before = load_file(path_of(first / "checkpoints", best) / "model.safetensors")
    newest = steps_saved(second / "checkpoints")[-1]
    after, state = load_file(newest / "model.safetensors"), load_file(newest / "optimizer.safetensors")
    frozen = {name for name in before if name.startswith(("stem.", "blocks.0."))}
    assert len(frozen) > 10
    for name, value in before.items():
        if name in frozen:
            assert value.equal(after[name]), name  # running statistics too
    assert not any(key.startswith(("stem.", "blocks.0.")) for key in state)
    assert any(record["kind"] == "callback" for record in read_events(second))


@pytest.mark.parametrize("project", ["imbalanced"], indirect=True)
def test_imbalanced(project: Path) -> None:
    plain, weights, sampling = (
        last(project / "runs" / name)["metrics"]["balanced_accuracy"] for name in ("plain", "weights", "sampling")
    )
    assert weights > plain
    assert sampling > plain
