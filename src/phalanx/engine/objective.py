"""What training minimises: from a view of some samples to logits and the loss. Methods of training differ here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from phalanx.data.augment.mixing import Targets
from phalanx.data.base import MicroBatch
from phalanx.engine.loss import Loss, training_loss

Forward = Callable[[Tensor], Tensor]  # images → logits, through the model that is trained


@dataclass(frozen=True)
class View:
    """A micro-batch as the model sees it: a pure function of (seed, epoch, start, step, micro.number)."""

    images: Tensor  # augmented and normalised
    targets: Targets
    micro: MicroBatch
    epoch: int
    start: int
    step: int


class Objective(Protocol):
    """Logits of the view for the counts, and the mean loss of its samples. Called under the settings' autocast."""

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Supervised:
    """The loss of the labels."""

    loss: Loss

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        logits = forward(view.images)
        return logits, training_loss(logits, view.targets, self.loss)
