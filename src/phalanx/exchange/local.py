"""local: one worker, which updates its own parameters."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from phalanx.data.order import Share
from phalanx.exchange.base import Applied, Exchange, WorkerGroup
from phalanx.optim.update import Update


def local_exchange(
    model: nn.Module,
    update: Update,
    *,
    accumulate: int,
    clip_norm: float | None,
    micro_batches: int | None = None,
) -> Exchange:
    """The update method of a job with one worker."""
    group = SingleWorker(Share(accumulate=accumulate, micro_batches=micro_batches))
    return Exchange(LocalGradients(model, update, clip_norm), group, LocalState(model, update, group))


class LocalGradients:
    """The update of this worker's own gradients."""

    def __init__(self, model: nn.Module, update: Update, clip_norm: float | None) -> None:
        self._model, self._update, self._clip_norm = model, update, clip_norm

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self._model(images)
        return output

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()  # autograd adds gradients up by itself

    def skip_step(self, images: Tensor) -> None:
        self._update.clear()

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        lr, norm = clip_and_update(self._model, self._update, self._clip_norm, step)
        return Applied(lr, norm, exchange_s=0.0, update_s=time.perf_counter() - begin)

    def discard(self) -> None:
        self._update.clear()


class SingleWorker:
    """The group of a job with one worker: sums and means are its own numbers."""

    lockstep = True

    def __init__(self, share: Share) -> None:
        self.share = share

    def sum(self, counts: list[float]) -> list[float]:
        return counts

    def mean(self, values: Tensor) -> Tensor:
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        return [values]

    def sync_step(self, stop: bool, counts: list[float]) -> tuple[bool, list[float]]:
        return stop, counts


class LocalState:
    """The state of a worker that has the whole optimizer itself, whether alone or in a group."""

    def __init__(self, model: nn.Module, update: Update, group: WorkerGroup) -> None:
        self._model, self._update, self._group = model, update, group

    def sync_buffers(self) -> None:
        average_buffers(self._model, self._group)

    def optimizer_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._update.state()

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        self._update.load(tensors, scalars)


def clip_and_update(model: nn.Module, update: Update, clip_norm: float | None, step: int) -> tuple[float, float | None]:
    """Clip, update and clear the gradients of a step: the rate, and the gradients' norm where it is clipped."""
    norm = None if clip_norm is None else nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    lr = update(step)
    update.clear()
    return lr, None if norm is None else float(norm)  # last: reading it waits for a GPU


@torch.no_grad()
def average_buffers(model: nn.Module, group: WorkerGroup) -> None:
    """Give all workers the mean of their floating-point buffers, which are batch-norm statistics."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    values = torch.cat([buffer.flatten() for buffer in buffers]) if buffers else torch.zeros(0)
    parts = group.mean(values).split([buffer.numel() for buffer in buffers])
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))
