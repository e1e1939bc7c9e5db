"""What DDP hooks have in common: starting collectives, counting bytes and time, residuals, encoding a bucket."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket  # its public name, torch.distributed.GradBucket, has no types
from torch.futures import Future

from phalanx.errors import UserError
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.residuals import Residuals

T = TypeVar("T")
Started = tuple[Future[Any], Callable[[Any], Tensor]]


class CollectiveFailed(Exception):
    """A collective call of a hook raised the error that is this one's cause."""


class HookState(ABC):
    """One rank's side of the exchange: what it held back, how much it sent, when its last bucket was ready.

    Backward never raises what a collective raised: that is kept in `failure`, so that it is not mistaken for an error
    of the model. Gradients are worthless then, and no further collective is started.
    """

    def __init__(self, names: Mapping[nn.Parameter, str], group: dist.ProcessGroup | None) -> None:
        self.last_ready = 0.0  # perf_counter when backward had filled the latest step's last bucket
        self._group, self._world = group, dist.get_world_size(group)
        self._residuals = Residuals(names)
        self._sent = self._received = 0
        self.failure: RuntimeError | None = None

    def exchange(self, bucket: GradBucket) -> Future[Tensor]:
        """Start to add a bucket up over all ranks."""
        if bucket.is_last():
            self.last_ready = time.perf_counter()
        buffer: Tensor = bucket.buffer()
        if self.failure is None:
            try:
                future, finish = self._start(bucket)
                return future.then(lambda done: self._finish(done, finish, buffer))
            except CollectiveFailed as failed:
                self._note(failed.__cause__)
        unsummed: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        unsummed.set_result(buffer)
        return unsummed

    def _finish(self, done: Future[Any], finish: Callable[[Any], Tensor], buffer: Tensor) -> Tensor:
        try:
            value = done.value()
        except RuntimeError as error:
            self._note(error)
            return buffer
        return finish(value)

    def _note(self, error: BaseException | None) -> None:
        assert isinstance(error, RuntimeError)
        self.failure = self.failure or error

    def take_bytes(self) -> tuple[int, int]:
        """Bytes sent and received since the last call.

        Counted is what this rank hands to the collective and gets back from it, not what the collective's algorithm
        makes of it: an all-reduce of n bytes sends n and receives n, an all-gather of n bytes sends n and receives n
        from each other rank. A rank that is alone sends nothing.
        """
        taken = self._sent, self._received
        self._sent = self._received = 0
        return taken

    def tensors(self) -> dict[str, Tensor]:
        """What this rank held back, by parameter name; not a copy. Each rank has its own.

        On another number of ranks the sum over the old ranks is what counts: give it to one rank, and zeros to others.
        """
        return self._residuals.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with what `tensors` returned."""
        self._residuals.load(tensors)

    def _count(self, sent: int, received: int) -> None:
        if self._world > 1:
            self._sent += sent
            self._received += received

    def _sum(self, tensor: Tensor) -> Future[list[Tensor]]:
        """Start to add a tensor up over all ranks, in place."""
        self._count(tensor.nbytes, tensor.nbytes)
        return _future(lambda: dist.all_reduce(tensor, group=self._group, async_op=True))

    def _gather(self, rows: Tensor, row: Tensor) -> Future[list[Tensor]]:
        """Start to fill `rows` with the row of each rank."""
        self._count(row.nbytes, row.nbytes * (self._world - 1))
        return _future(lambda: dist.all_gather_into_tensor(rows.view(-1), row, group=self._group, async_op=True))

    def _encode(self, codec: Codec, bucket: GradBucket) -> tuple[Tensor, list[int]]:
        """The payloads of a bucket's parameters in one row, and the size of each."""
        gradients = bucket.gradients()
        sizes = [codec.wire_bytes(gradient.numel()) for gradient in gradients]
        row = torch.empty(sum(sizes), dtype=torch.uint8, device=bucket.buffer().device)
        for param, gradient, payload in zip(bucket.parameters(), gradients, row.split(sizes), strict=True):
            try:
                codec.encode(gradient.view(-1), self._residuals.flat(param), payload)
            except UserError as error:
                what = f"{error.what} (gradient of {self._residuals.name(param)})"
                raise UserError(what, why=error.why, remedy=error.remedy) from None
        return row, sizes

    @abstractmethod
    def _start(self, bucket: GradBucket) -> Started:
        """Start the collective of a bucket: its future, and what makes the bucket's sum from the future's value."""


def started(start: Callable[[], T]) -> T:
    """Start a collective. Raises CollectiveFailed."""
    try:
        return start()
    except RuntimeError as error:
        raise CollectiveFailed from error


def _future(start: Callable[[], dist.Work | None]) -> Future[list[Tensor]]:
    work = started(start)
    assert work is not None  # None is for ranks outside the group
    future: Future[list[Tensor]] = work.get_future()
    return future
