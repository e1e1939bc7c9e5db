"""What the engine asks of an update method: to exchange gradients, to act as one group of workers, to save state."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from phalanx.data.order import Share
from phalanx.errors import UserError


class LostWorker(UserError):
    """Another process of the job is gone or silent; this one cannot go on alone. `lost` is its role, where known."""

    def __init__(self, what: str, *, why: str = "", remedy: str = "", lost: str = "") -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.lost = lost


class GivenUp(LostWorker):
    """The others took this worker for lost, and go on without it. `Exchange.rejoin` joins them again."""


class PlaceTaken(UserError):
    """The others took this worker for lost, and another process has its place now: this one has nothing to do."""


@dataclass(frozen=True)
class Rejoined:
    """A worker is back in its job: the step that it continues with, and what to tell the user."""

    step: int
    text: str


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


class GradientExchange(Protocol):
    """The gradient path: gradients of all workers in, next parameters out."""

    def forward(self, images: Tensor) -> Tensor:
        """The model's output. Backward through it exchanges gradients."""
        ...

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one micro-batch. After the `last` one of a step gradients may leave."""
        ...

    def skip_step(self, images: Tensor) -> None:
        """Instead of forward and backward, where this worker has no samples in a step; `images` has 0 rows."""
        ...

    def apply(self, step: int) -> Applied:
        """Update the parameters with the gradients of all workers, and clear the gradients."""
        ...

    def discard(self) -> None:
        """Drop the gradients of a step that must not be applied."""
        ...


class WorkerGroup(Protocol):
    """The workers of a job, as one of them sees them."""

    share: Share  # this worker's rank, the number of workers, and this worker's part of each step's samples
    lockstep: bool  # whether all workers take each step together, so that metrics can be summed step by step

    def sum(self, counts: list[float]) -> list[float]:
        """Add counts over all workers."""
        ...

    def mean(self, values: Tensor) -> Tensor:
        """The mean of a one-dimensional tensor over all workers. `values` may be overwritten."""
        ...

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of all workers, by rank and of the same shape: on rank 0, and nothing elsewhere."""
        ...

    def sync_step(self, stop: bool, counts: list[float]) -> tuple[bool, list[float]]:
        """Once a step, before `apply`: whether any worker wants to stop, and the step's counts over all workers.

        In lockstep all workers get the same result, so that all stop after the same step. Otherwise each worker gets
        back what it gave.
        """
        ...


@runtime_checkable
class AsyncWorkerGroup(WorkerGroup, Protocol):
    """Workers that are not in lockstep: each may stop after another step."""

    def leave(self) -> None:
        """This worker makes no further step. It still takes part in the last checkpoint."""
        ...


class ExchangeState(Protocol):
    """What evaluation and checkpoints need: current weights and buffers, and the optimizer's state."""

    def sync_buffers(self) -> None:
        """Make the parameters current, and average batch-norm statistics over all workers. All workers call this."""
        ...

    def optimizer_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The whole optimizer state: tensors and scalars. All workers call this; rank 0 gets it."""
        ...

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continue with a saved optimizer state."""
        ...


class ResidualState(Protocol):
    """What compression has held back so far and still has to send."""

    def residuals(self) -> dict[str, Tensor]:
        """Residuals as `RANK/parameter`. All workers call this; rank 0 gets those of all workers."""
        ...

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with saved residuals, of any number of workers."""
        ...


@dataclass(frozen=True)
class Rescued:
    """What a worker can save by itself after others were lost. The model holds the parameters."""

    optimizer: dict[str, Tensor]
    scalars: dict[str, Any]
    residuals: dict[str, Tensor]  # this worker's own


class Recovery(Protocol):
    """Goes back to the last step boundary after another worker was lost."""

    def mark(self) -> None:
        """Before a step: remember what the step changes before its update is made."""
        ...

    def roll_back(self) -> None:
        """Undo what a failed step has changed since `mark`, and drop its gradients."""
        ...

    def rescue(self, step: int) -> Rescued:
        """The state before step `step`, without the other workers. Raises LostWorker where that is not possible."""
        ...


@dataclass(frozen=True)
class Exchange:
    """An update method, ready to use: one part for each thing that the engine asks for."""

    gradients: GradientExchange
    group: WorkerGroup
    state: ExchangeState
    residuals: ResidualState | None = None  # where gradients are compressed
    recovery: Recovery | None = None  # where the survivors of a lost worker can save the last completed step
    joined_step: int | None = None  # the step to continue with, where this worker joins a running job
    rejoin: Callable[[GivenUp], Rejoined] | None = None  # where a worker that was given up may join again
    sends_in_backward: bool = False  # whether gradients leave for good before the whole step is known
    stopping: Callable[[], bool] = (
        bool  # whether a parameter server was told to end, and asks all workers to save first
    )
    leave_unfinished: Callable[[], object] | None = None  # before `close`: training is to go on later, in another job
    sync_bn: bool = False  # whether all workers take part in every micro-batch, with or without samples
    connections: ExitStack = field(default_factory=ExitStack)  # to the other processes of the job

    def close(self) -> None:
        """Disconnect from the other processes of the job."""
        self.connections.close()
