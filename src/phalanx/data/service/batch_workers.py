"""The threads of a data server that make batches, as many bytes ahead of the network as memory allows."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import torch

from phalanx.custom import blame
from phalanx.data.order import Work
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.body import pack_batch
from phalanx.data.service.session import Session
from phalanx.errors import UserError

# Batches that are being made at a time. While the last samples of one are decoded and its pixels are put together, the
# other keeps the decoding threads busy.
_AT_A_TIME = 2
HELD_BYTES = 512 << 20  # pixels that may wait for the network before makers rest


@dataclass(frozen=True)
class Order:
    """A batch that a trainer has leased."""

    session: Session
    number: int
    work: Work
    slot: int
    place: torch.Tensor | None  # of the slot, for the pixels; None where they travel


@dataclass(frozen=True)
class Done:
    """An order and what came of it: `told`, how long its pixels are, and these if they have to travel; or an error."""

    order: Order
    told: bytes = b""
    length: int = 0
    pixels: torch.Tensor | None = None
    error: UserError | None = None

    @property
    def num_bytes(self) -> int:
        return 0 if self.pixels is None else self.pixels.nbytes


class BatchWorkers:
    """Makes orders one after another, first come, first served. `finished` is called by a maker for each."""

    def __init__(self, pipeline: Pipeline, pool: Executor | None, finished: Callable[[Done], None]) -> None:
        self._pipeline, self._pool, self._finished = pipeline, pool, finished
        self._orders: deque[Order] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._held = 0
        self._active, self._since = 0, time.perf_counter()
        self._idle_s = 0.0
        self.samples = 0
        self._threads = [
            threading.Thread(target=self._work, name="phalanx-maker", daemon=True) for _ in range(_AT_A_TIME)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, order: Order) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify()

    def forget(self, session: Session) -> None:
        """Its trainer is gone, or waits for these batches no longer."""
        with self._changed:
            self._orders = deque(order for order in self._orders if order.session is not session)

    def sent(self, num_bytes: int) -> None:
        """So many bytes have left, or need not leave any more."""
        with self._changed:
            self._held -= num_bytes
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        return len(self._orders)

    def idle_s(self) -> float:
        """Seconds so far in which there was nothing to make."""
        with self._changed:
            return self._idle_s + (time.perf_counter() - self._since if self._active == 0 else 0.0)

    def close(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=60)

    def _work(self) -> None:
        torch.set_num_threads(1)
        while (order := self._next()) is not None:
            try:
                done = self._make(order)
            except UserError as error:
                done = Done(order, error=error)
            except Exception as error:  # a batch that cannot be made must not take the server with it
                done = Done(order, error=blame(error) or _unexpected(error))
            with self._changed:
                self._held += done.num_bytes
                self._active -= 1
                self._since = time.perf_counter()
                self.samples += order.work.total
            self._finished(done)

    def _next(self) -> Order | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._orders and self._held < HELD_BYTES))
            if self._stopped:
                return None
            if self._active == 0:
                self._idle_s += time.perf_counter() - self._since
            self._active += 1
            return self._orders.popleft()

    def _make(self, order: Order) -> Done:
        made = pack_batch(*self._pipeline.make(order.work, self._pool))
        if order.place is None or len(order.place) < len(made.pixels):
            return Done(order, made.told, len(made.pixels), made.pixels)
        order.place[: len(made.pixels)] = made.pixels
        return Done(order, made.told, len(made.pixels))


def _unexpected(error: Exception) -> UserError:
    return UserError(
        "a batch could not be made", why=f"{type(error).__name__}: {error}", remedy="see what the data server printed"
    )
