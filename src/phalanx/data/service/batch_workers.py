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
MAX_UNSENT_BYTES = 512 << 20  # pixels that may wait for the network before the threads pause


@dataclass(frozen=True)
class BatchRequest:
    """A batch that a trainer has leased."""

    session: Session
    number: int
    work: Work
    slot: int
    place: torch.Tensor | None  # the slot's memory, for the pixels; None where they are sent


@dataclass(frozen=True)
class FinishedBatch:
    """A request's batch, or the error that it ended with."""

    request: BatchRequest
    control: bytes = b""  # labels and all else that is small
    length: int = 0  # of the pixels
    pixels: torch.Tensor | None = None  # where they have to be sent
    error: UserError | None = None

    @property
    def num_bytes(self) -> int:
        return 0 if self.pixels is None else self.pixels.nbytes


class BatchWorkers:
    """Makes batches in the order of their requests. `finished` is called for each, in one of the threads."""

    def __init__(self, pipeline: Pipeline, pool: Executor | None, finished: Callable[[FinishedBatch], None]) -> None:
        self._pipeline, self._pool, self._finished = pipeline, pool, finished
        self._requests: deque[BatchRequest] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._unsent_bytes = 0
        self._active, self._since = 0, time.perf_counter()
        self._idle_s = 0.0
        self.samples = 0
        self._threads = [
            threading.Thread(target=self._work, name="phalanx-batches", daemon=True) for _ in range(_AT_A_TIME)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, request: BatchRequest) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify()

    def forget(self, session: Session) -> None:
        """Drop the requests of a trainer that is gone or no longer waits for them."""
        with self._changed:
            self._requests = deque(each for each in self._requests if each.session is not session)

    def sent(self, num_bytes: int) -> None:
        """So many bytes were sent, or need not be sent any more."""
        with self._changed:
            self._unsent_bytes -= num_bytes
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        return len(self._requests)

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
        while (request := self._next()) is not None:
            try:
                done = self._make(request)
            except UserError as error:
                done = FinishedBatch(request, error=error)
            except Exception as error:  # a batch that cannot be made must not end the server
                done = FinishedBatch(request, error=blame(error) or _unexpected(error))
            with self._changed:
                self._unsent_bytes += done.num_bytes
                self._active -= 1
                self._since = time.perf_counter()
                self.samples += request.work.total
            self._finished(done)

    def _next(self) -> BatchRequest | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._requests and self._unsent_bytes < MAX_UNSENT_BYTES))
            if self._stopped:
                return None
            if self._active == 0:
                self._idle_s += time.perf_counter() - self._since
            self._active += 1
            return self._requests.popleft()

    def _make(self, request: BatchRequest) -> FinishedBatch:
        packed = pack_batch(*self._pipeline.make(request.work, self._pool))
        length = len(packed.pixels)
        if request.place is None or len(request.place) < length:
            return FinishedBatch(request, packed.control, length, packed.pixels)
        request.place[:length] = packed.pixels
        return FinishedBatch(request, packed.control, length)


def _unexpected(error: Exception) -> UserError:
    return UserError(
        "a batch could not be made", why=f"{type(error).__name__}: {error}", remedy="see what the data server printed"
    )
