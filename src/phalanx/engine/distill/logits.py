"""Where the teachers' logits of a view come from: this process, teacher processes, or a cache."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from phalanx.data.base import Batch, MicroBatch
from phalanx.engine.distill.teacher import Teacher
from phalanx.engine.objective import View


class TeacherLogits(Protocol):
    """The answers of all teachers to a view, for the student's classes in their order."""

    def logits(self, view: View) -> Tensor:
        """(num_teachers, n, classes) in float32, on the view's device, without a gradient."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class LooksAhead(Protocol):
    """A source of logits that can begin before a step needs them."""

    def announce(self, batch: Batch, step: int) -> None:
        """The logits of this batch will be needed at that step."""
        ...

    def announce_micro(self, micro: MicroBatch, epoch: int, start: int, step: int) -> None:
        """Those of one of its micro-batches."""
        ...


class LocalTeachers:
    """Teachers in the trainer's own process."""

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    def logits(self, view: View) -> Tensor:
        return torch.stack([teacher.logits(view.images) for teacher in self._teachers])

    def close(self) -> None:
        pass
