"""What is promised in bf16, beside fp32: see docs/update-methods.md. Real processes, on any CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phalanx.runs import checkpoint
from tests.conftest import LEAN
from tests.exchange.test_modes import largest_relative_difference

pytestmark = pytest.mark.numeric

# 96 of 1,442 digits a step. Without batch norm, whose statistics are each worker's own.
SMALL = ["model.name=test_vit", "data.image_size=32", "optim.lr=0.005", "schedule.kind=constant", *LEAN]
SMALL += ["train.length=8st", "eval.every=100%", "--global-batch-size", "96", "checkpoint.every=1st"]
SMALL += ["checkpoint.keep_last=9", "machine.precision=bf16"]


def phalanx_train(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "train", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(out: Path, *settings: str) -> Path:
    phalanx_train("digits", *SMALL, *settings, "--out", str(out))
    return out


def tensors(run: Path, step: int) -> dict[str, torch.Tensor]:
    loaded = checkpoint.load(checkpoint.path_of(run / "checkpoints", step)).tensors
    return {f"{kind}/{name}": tensor for kind in ("model", "optimizer") for name, tensor in loaded[kind].items()}


def assert_same_bits(one: Path, other: Path) -> None:
    mine, theirs = tensors(one, 8), tensors(other, 8)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four micro-batches a step, in one process."""
    return train(tmp_path_factory.mktemp("bf16") / "run", "optim.accumulate=4")


def test_bf16_and_fp32_are_told_apart(local: Path, tmp_path: Path) -> None:
    """Otherwise nothing here would be about bf16."""
    train(tmp_path / "fp32", "optim.accumulate=4", "machine.precision=fp32")
    assert largest_relative_difference(tensors(local, 1), tensors(tmp_path / "fp32", 1)) > 1e-5


@pytest.mark.parametrize("method", [["collective"], ["pserver", "--servers", "2"]], ids=" ".join)
def test_one_worker_has_the_same_bits_in_every_mode(local: Path, tmp_path: Path, method: list[str]) -> None:
    assert_same_bits(local, train(tmp_path / "run", "optim.accumulate=4", "--update-method", *method))


@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_workers_are_accumulated_micro_batches(local: Path, tmp_path: Path, method: str) -> None:
    many = train(tmp_path / "run", "--update-method", method, "--workers", "4")
    # Gradients of the same bf16 numbers are added in fp32, in another order.
    assert largest_relative_difference(tensors(local, 1), tensors(many, 1)) < 1e-6
    # From then on the last bit of a weight may decide how it is rounded to bf16, which has 8 bits (0.4 %).
    weights = [{name: each for name, each in tensors(run, 8).items() if "model" in name} for run in (local, many)]
    assert largest_relative_difference(*weights) < 2e-2


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(local: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", "optim.accumulate=4", "train.length=3st")
    said = phalanx_train("--resume", str(run), "train.length=8st")
    assert ", bf16 (kept from the run's beginning)" in said
    assert_same_bits(local, run)
