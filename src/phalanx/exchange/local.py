"""local: one process, nothing to exchange."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from phalanx.data.order import Share
from phalanx.exchange.base import Applied
from phalanx.optim.update import Update


def update_here(model: nn.Module, update: Update, clip_norm: float | None, step: int) -> tuple[float, float | None]:
    """Clip, update and clear, where all gradients of a step are at hand: the rate, and the norm if it was needed."""
    norm = None if clip_norm is None else float(nn.utils.clip_grad_norm_(model.parameters(), clip_norm))
    lr = update(step)
    update.clear()
    return lr, norm


class LocalExchange:
    """The update happens here, on gradients made here."""

    lockstep = True
    syncs_inside = False
    joined_step: int | None = None

    def __init__(
        self,
        model: nn.Module,
        update: Update,
        *,
        accumulate: int,
        clip_norm: float | None,
        micro_batches: int | None = None,
    ) -> None:
        self.share = Share(accumulate=accumulate, micro_batches=micro_batches)
        self._model, self._update, self._clip_norm = model, update, clip_norm

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self._model(images)
        return answer

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()

    def skip_step(self, images: Tensor) -> None:
        raise AssertionError("one worker has all samples of a step, and a step has at least one")

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        lr, norm = update_here(self._model, self._update, self._clip_norm, step)
        return Applied(lr, norm, exchange_s=0.0, update_s=time.perf_counter() - begin)

    def discard(self) -> None:
        self._update.clear()

    def sum(self, counts: list[float]) -> list[float]:
        return counts

    def sync_step(self, wish: bool, counts: list[float]) -> tuple[bool, list[float]]:
        return wish, counts

    def leave(self) -> None:
        pass  # nobody waits

    def sync_buffers(self) -> None:
        """Nobody else has statistics."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._update.state()

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        self._update.load(tensors, scalars)

    def residuals(self) -> dict[str, Tensor]:
        return {}

    def load_residuals(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing is compressed here. What other modes owed is lost: less than a step's worth of gradient."""

    def close(self) -> None:
        """Nobody else is there."""
