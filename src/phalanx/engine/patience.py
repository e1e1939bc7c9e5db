"""Early stopping (`train.patience`): training ends when validation has not improved for so long.

There is nothing to save: the step of the best evaluation is in checkpoints and events, and everything follows from it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from phalanx.config.durations import Duration
from phalanx.engine.state import TrainState


@dataclass
class Patience:
    """Whether training may end. The first worker decides: it knows all evaluations, an evaluator's too."""

    steps: int | None = None  # None: it never ends early
    asked: Duration | None = None
    rank: int = 0
    wants_stop: bool = False  # of this worker
    agreed: bool = False  # whether all workers know it

    def judge(self, state: TrainState, evaluated: int) -> None:
        """After the evaluation of a step."""
        if self.steps is not None and self.rank == 0 and state.best is not None:
            self.wants_stop = evaluated - state.best.step >= self.steps

    def agree(self, total: Callable[[list[float]], list[float]]) -> bool:
        """Whether the first worker has decided so. All workers call this; `total` adds over them."""
        if self.steps is not None and not self.agreed:
            self.agreed = total([float(self.wants_stop)])[0] > 0
        return self.agreed

    def reason(self, state: TrainState) -> str:
        """For the log."""
        since = f" since step {state.best.step}" if state.best is not None else ""
        return f"training ends early at step {state.step}: validation is no better{since} (train.patience={self.asked})"
