"""Adversarial training is the same wherever it runs, and after a resume. Real processes throughout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.exchange.test_modes import largest_relative_difference

# Networks with batch norm; micro-batches of 12. The rate is small because training amplifies rounding, and a sign does.
SMALL = ["digits", "model.name=wrn10_1", "train.length=6st", "checkpoint.every=3st", "checkpoint.keep_last=9"]
SMALL += ["eval.every=100%", "optim.lr=0.002", "train.log_every=1", *LEAN, "--global-batch-size", "24"]
SMALL += ["adversarial.attack=pgd", "adversarial.steps=2", "adversarial.eps=0.05", "adversarial.mix=0.2"]
MODES = {
    "local": ["optim.accumulate=2"],
    "collective": ["--workers", "2"],
    "pserver": ["--workers", "2", "--update-method", "pserver"],
}


# Saved after 3 steps by the setting, and after 4 because the second batch is used once more.
FREE = [*SMALL[:-4], "adversarial.attack=free", "adversarial.replays=2", "adversarial.eps=0.05"]


def phalanx(*words: str) -> str:
    command = [sys.executable, "-m", "phalanx", "train", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("adversarial")
    for name, words in MODES.items():
        phalanx(*SMALL, *words, "--out", str(home / name))
        phalanx(*FREE, *words, "--out", str(home / f"free {name}"))
    return {path.name: path for path in home.iterdir()}


@pytest.mark.numeric
@pytest.mark.parametrize("mode", ["collective", "pserver"])
def test_two_workers_are_two_micro_batches(runs: dict[str, Path], mode: str) -> None:
    assert largest_relative_difference(weights(runs["local"]), weights(runs[mode])) < 1e-4
    losses = [[one["loss"] for one in read_events(runs[name]) if one["kind"] == "step"] for name in ("local", mode)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert "adversarial training: pgd of 2 steps within linf 0.05" in (runs[mode] / "log.txt").read_text()


@pytest.mark.numeric
@pytest.mark.parametrize("mode", ["collective", "pserver"])
def test_free_training_is_the_same_on_two_workers(runs: dict[str, Path], mode: str) -> None:
    assert largest_relative_difference(weights(runs["free local"]), weights(runs[f"free {mode}"])) < 1e-4
    steps = [one for one in read_events(runs[f"free {mode}"]) if one["kind"] == "step"]
    assert [one["used"] for one in steps] == [[], [[1, 0, 24]], [], [[1, 24, 48]], [], [[1, 48, 72]]]
    assert [one["batch"] for one in steps] == [1, 2, 3, 4, 5, 6]
    assert "each batch is used for 2 updates in a row" in (runs[f"free {mode}"] / "log.txt").read_text()


@pytest.mark.parametrize("mode", ["local", "pserver", "free local", "free collective"])  # each method, each mode
def test_a_resumed_run_has_the_same_bits(runs: dict[str, Path], tmp_path: Path, mode: str) -> None:
    part = Path(shutil.copytree(runs[mode], tmp_path / "run"))
    assert (part / "checkpoints" / ("step-00000004" if "free" in mode else "step-00000003")).is_dir()
    shutil.rmtree(part / "checkpoints" / "step-00000006")
    phalanx("--resume", str(part))
    one, other = weights(runs[mode]), weights(part)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_fgsm_with_its_guard_trains_on_two_workers(tmp_path: Path) -> None:
    """The guard's counts travel with every step's; what it decides on such data is not the question here."""
    method = ["adversarial.attack=fgsm", "adversarial.steps=null", "adversarial.mix=0", "adversarial.guard_every=2"]
    phalanx(*SMALL, *method, "train.length=3st", "--workers", "2", "--out", str(tmp_path / "run"))
    steps = [one for one in read_events(tmp_path / "run") if one["kind"] == "step"]
    assert len(steps) == 3
    assert all(0 < one["loss"] < 20 for one in steps)
