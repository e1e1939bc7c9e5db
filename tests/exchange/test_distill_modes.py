"""Distillation gives the same with workers and servers as alone: two workers are two accumulated micro-batches."""

from pathlib import Path

import pytest
import torch

from phalanx.runs import checkpoint
from tests.exchange.test_modes import largest_relative_difference, train

# 98 samples in batches of 24: the last of an epoch has two, which one worker takes, and the other has none. The rate is
# small, so that what rounding changes does not grow.
SHORT = ["train.length=6st", "--global-batch-size", "24", "optim.lr=0.001", "checkpoint.every=6st", "eval.every=100%"]
SHORT += ["data.source=synthetic", "data.synthetic={samples: 98, val_samples: 12, classes: 10, size: 16, channels: 1}"]
METHODS = {
    "kl": ["--teacher", "{}"],
    "feature": ["--teacher", "{}", "distill.loss=feature", "distill.layers={{blocks.1: blocks.2}}"],
    "mutual": ["distill.loss=mutual"],
}


def all_tensors(out: Path) -> dict[str, torch.Tensor]:
    groups = checkpoint.load_newest(out / "checkpoints")[0].tensors
    return {
        f"{group}/{name}": tensor for group in ("model", "distill") for name, tensor in groups.get(group, {}).items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_two_workers_are_two_micro_batches(digits_run: Path, tmp_path: Path, name: str) -> None:
    settings = [*SHORT, *(setting.format(digits_run) for setting in METHODS[name])]
    train(tmp_path / "local", *settings, "optim.accumulate=2")
    one = all_tensors(tmp_path / "local")
    assert any(key.startswith("distill/") for key in one) == (name != "kl")
    for method in ("collective", "pserver") if name == "mutual" else ("collective",):  # servers have its peers, too
        train(tmp_path / method, *settings, "--update-method", method, "--workers", "2")
        assert largest_relative_difference(one, all_tensors(tmp_path / method)) < 1e-4
