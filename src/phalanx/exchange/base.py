"""The seam between a trainer and whatever turns its gradients into the next parameters."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from phalanx.data.order import Share
from phalanx.errors import UserError


class LostWorker(UserError):
    """Another process of the job is gone or silent; this one cannot go on alone."""


@dataclass(frozen=True)
class Applied:
    """What an update did: the rate that it used, the gradients' global norm where known, and where the time went."""

    lr: float
    grad_norm: float | None
    exchange_s: float  # all of the exchange that computing did not hide
    update_s: float
    inside_backward_s: float = 0.0  # the part of exchange_s that was spent before `apply`, waiting inside backward
    bytes_sent: int = 0
    bytes_received: int = 0
    details: dict[str, Any] = field(default_factory=dict)  # such as staleness; goes into the step event


class Exchange(Protocol):
    """An update method. Its constructor gets the model, so that it can overlap with backward."""

    share: Share  # which part of each step's samples belongs to this worker
    joined_step: int | None  # the step to go on with, where this worker comes into a job that is running
    syncs_inside: bool  # whether workers meet within each micro-batch, so that all take part with or without samples
    lockstep: bool  # whether all workers take each step together, so that metrics can be summed step by step

    def forward(self, images: Tensor) -> Tensor:
        """The model's answer, watched by whatever exchanges gradients during backward."""
        ...

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one micro-batch; `last` of the step, so gradients may leave."""
        ...

    def skip_step(self, images: Tensor) -> None:
        """Instead of `gathering`, where a step has no samples for this worker; `images` has 0 rows."""
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

    def sync_step(self, wish: bool, counts: list[float]) -> tuple[bool, list[float]]:
        """Once a step, before `apply`: whether any worker wishes to stop, and the step's counts over all workers.

        Workers in lockstep get the same answer, so that all stop after the same step. To others their own comes back.
        """
        ...

    def leave(self) -> None:
        """No further step is made here, wherever the others stand; what this worker has is saved yet."""
        ...

    def sync_buffers(self) -> None:
        """Before evaluation and checkpoints: parameters current, batch-norm statistics averaged over workers."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimizer's state, whole, wherever it lives."""
        ...

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None: ...

    def residuals(self) -> dict[str, Tensor]:
        """What compression still owes, as `RANK/parameter`: of all workers on rank 0, anything elsewhere."""
        ...

    def load_residuals(self, tensors: Mapping[str, Tensor]) -> None: ...

    def close(self) -> None:
        """Take leave of the other workers."""
        ...


@dataclass(frozen=True)
class Rescued:
    """What a worker can save by itself after others were lost. The model holds the parameters."""

    optimizer: dict[str, Tensor]
    scalars: dict[str, Any]
    residuals: dict[str, Tensor]  # this worker's own


@runtime_checkable
class Elastic(Protocol):
    """What an exchange can do beside, where other workers may be lost: go back to the last step boundary."""

    def mark(self) -> None:
        """Before a step: remember what it changes before its update is made."""
        ...

    def roll_back(self) -> None:
        """Undo what a failed step has changed since `mark`. Its gradients are dropped."""
        ...

    def rescue(self, step: int) -> Rescued:
        """The state before step `step`, without the others. Raises LostWorker where it cannot be had."""
        ...
