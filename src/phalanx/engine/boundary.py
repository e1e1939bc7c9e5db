"""The last step boundary: what a step changes before its update, so that a step which fails can be undone."""

from copy import copy

import torch
from torch import Tensor

from phalanx.engine.state import LossScale, TrainState
from phalanx.exchange.base import Recovery


class Boundary:
    """Marked before each step of an elastic job.

    A step first changes batch-norm statistics, the fp16 loss scale and what compression owes; parameters, optimizer and
    position move only when it is made. So little is copied: the buffers, and residuals where there are any.
    """

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._step = -1
        self._buffers: list[Tensor] = []
        self._loss_scale: LossScale | None = None

    @torch.no_grad()
    def mark(self, state: TrainState) -> None:
        """All of `state` is whole now."""
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
        """Undo a step that was begun and not made; a step that was made stays."""
        if self._step != state.step:
            return
        for kept, buffer in zip(self._buffers, state.model.buffers(), strict=True):
            buffer.copy_(kept)
        state.loss_scale = self._loss_scale
        self.recovery.roll_back()
