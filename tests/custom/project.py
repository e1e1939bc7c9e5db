"""A user's project: a network with a module beside it, a loss, an optimizer and a schedule."""

from pathlib import Path

from tests.conftest import LEAN

NETS = """\
from torch import nn

from blocks import block


class TinyNet(nn.Module):
    def __init__(self, num_classes, channels, width=8):
        super().__init__()
        self.body = nn.Sequential(block(channels, width), nn.MaxPool2d(2), nn.Dropout(0.1), block(width, width))
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images):
        return self.fc(self.body(images).mean((2, 3)))
"""
BLOCKS = """\
from torch import nn


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
"""
PARTS = """\
import torch
import torch.nn.functional as F


def focal(logits, labels, gamma=2.0):
    each = F.cross_entropy(logits, labels, reduction="none")
    return (1 - torch.exp(-each)) ** gamma * each


def rate(step, total_steps, peak):
    return peak * (1 - step / total_steps)


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                average = self.state[param].setdefault("average", torch.zeros_like(param))
                average.mul_(group["momentum"]).add_(param.grad, alpha=1 - group["momentum"])
                param.add_(average.sign(), alpha=-group["lr"])
"""
OWN = (
    *("model.name=nets.py:TinyNet", "model.options.width=4", "loss.name=parts.py:focal", "optim.lr=0.003"),
    *("optim.name=parts.py:SignSGD", "schedule.kind=parts.py:rate", "schedule.warmup=0ep"),
)
STEPS = ("train.length=6st", "checkpoint.every=3st", "eval.every=6st", "train.batch_size=64", *LEAN)


def write_project(folder: Path) -> Path:
    """The files of the project, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("nets.py", NETS), ("blocks.py", BLOCKS), ("parts.py", PARTS)):
        (folder / name).write_text(text)
    return folder
