"""The seam between a trainer and whatever turns its gradients into the next parameters."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from phalanx.data.order import Share


@dataclass(frozen=True)
class Applied:
    """What an update did: the rate that it used, the gradients' global norm where known, and where the time went."""

    lr: float
    grad_norm: float | None
    exchange_s: float
    update_s: float


class Exchange(Protocol):
    """An update method. Its constructor gets the model, so that it can overlap with backward."""

    share: Share  # which part of each step's samples belongs to this worker

    def forward(self, images: Tensor) -> Tensor:
        """The model's answer, watched by whatever exchanges gradients during backward."""
        ...

    def gathering(self, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one micro-batch; `last` of the step, so gradients may leave."""
        ...

    def apply(self, step: int) -> Applied:
        """Gradients in, next parameters out, gradients cleared."""
        ...

    def discard(self) -> None:
        """Drop the gradients of a step that is not to be applied."""
        ...

    def sum(self, counts: list[float]) -> list[float]:
        """Add counts over all workers."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimizer's state, whole, wherever it lives."""
        ...

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None: ...
