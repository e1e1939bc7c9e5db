"""The worst that an attack can do to some samples: what a model answers before, and after several starts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from phalanx.config.adversarial_schema import AttackConfig
from phalanx.data.order import Indices
from phalanx.engine.attack import Attack, PixelRange
from phalanx.engine.attack_draws import first_changes, wrong_classes


@dataclass(frozen=True)
class Worst:
    """Of each sample: logits of the image, and the attacked image with its logits.

    A sample is attacked until its answer is wrong, and not at all if it is wrong by itself.
    """

    before: Tensor
    images: Tensor
    after: Tensor
    targets: Tensor | None  # the classes that the attack moved to


@dataclass(frozen=True)
class RepeatedAttack:
    """An attack from several starts, each drawn from (seed, sample). The worst of them counts."""

    config: AttackConfig
    restarts: int
    pixels: PixelRange
    num_classes: int
    seed: int

    @torch.no_grad()
    def __call__(self, forward: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, indices: Indices) -> Worst:
        attack, config = Attack.of(self.config), self.config
        targets = wrong_classes(labels, self.num_classes, self.seed, 0, indices) if config.targeted else None
        before = forward(images).float()
        worst, after = images.clone(), before.clone()
        for number in range(self.restarts):
            rows = torch.nonzero(answers(after) == labels)[:, 0]
            if not len(rows):
                break
            some, goal = images[rows], (labels if targets is None else targets)[rows]
            sign = 1.0 if targets is None else -1.0

            def loss(logits: Tensor, goal: Tensor = goal, sign: float = sign) -> Tensor:
                return sign * F.cross_entropy(logits, goal, reduction="sum")

            found = attack(forward, some, self._start(some, number, indices[rows.cpu().numpy()]), loss, self.pixels)
            worst[rows], after[rows] = found, forward(found).float()
        return Worst(before, worst, after, targets)

    def _start(self, images: Tensor, number: int, indices: Indices) -> Tensor:
        if not self.config.random_start:
            return torch.zeros_like(images)
        stream = f"evaluation start {number}"
        return first_changes(images, self.config.norm, self.config.eps, self.seed, stream, 0, indices)


def answers(logits: Tensor) -> Tensor:
    """The class that a model answers."""
    return logits.topk(1, dim=1).indices[:, 0]
