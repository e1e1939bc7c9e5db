"""Undo a failed step: a snapshot of everything that a step changes before its update."""

from copy import copy

import torch
from torch import Tensor

from phalanx.engine.state import LossScale, TrainState
from phalanx.exchange.base import Recovery


class Boundary:
    """The snapshot at the last step boundary of an elastic job.

    Before its update, a step changes only batch-norm statistics, the fp16 loss scale and compression residuals.
    Parameters, optimizer state and position change with the update. So the snapshot is small.
    """

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._step = -1
        self._buffers: list[Tensor] = []
        self._loss_scale: LossScale | None = None

    @torch.no_grad()
    def mark(self, state: TrainState) -> None:
        """Take the snapshot, before a step."""
        buffers = list(state.model.buffers())
        if not self._buffers:
            self._buffers = [torch.empty_like(buffer) for buffer in buffers]
        for kept, buffer in zip(self._buffers, buffers, strict=True):
            kept.copy_(buffer)
        self._loss_scale = copy(state.loss_scale)
        self._step = state.step
        self.recovery.mark()

    @torch.no_grad()
    def restore(self, state: TrainState) -> None:
        """Undo a step whose update was not applied. A step whose update was applied stays."""
        if self._step != state.step:
            return
        for kept, buffer in zip(self._buffers, state.model.buffers(), strict=True):
            buffer.copy_(kept)
        state.loss_scale = self._loss_scale
        self.recovery.roll_back()
