"""The order of samples: a pure function of (seed, epoch, number of samples). Rank and world only select from it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.data.random import bits

Indices = npt.NDArray[np.int64]


def epoch_order(seed: int, epoch: int, num_samples: int) -> Indices:
    """The permutation of an epoch. Sorting random keys keeps it the same on every platform and library version."""
    keys = bits(seed, "order", epoch, np.arange(num_samples, dtype=np.int64))[:, 0]
    return np.argsort(keys, kind="stable").astype(np.int64)


def num_batches(num_samples: int, batch: int, drop_last: bool) -> int:
    """Steps in an epoch. A last batch of one sample joins the one before it: batch norm cannot use it alone."""
    whole, rest = divmod(num_samples, batch)
    return whole + int(not drop_last and rest > (1 if whole else 0))


def split(batch: Indices, parts: int) -> list[Indices]:
    """Split a step's samples into micro-batches, as evenly as possible, none of a single sample (batch norm again).

    Where there are too few samples for all parts, the later parts are empty.
    """
    used = max(1, min(parts, len(batch) // 2))
    empty = batch[:0]
    return [*np.array_split(batch, used), *([empty] * (parts - used))]


@dataclass(frozen=True)
class Share:
    """Which micro-batches of each step belong to one worker: neighbouring ones, as evenly as possible.

    A step has `accumulate` of them for each worker, or as many as `micro_batches` says: a job that lost a worker keeps
    their number, so that the result stays the same; some workers then have one more than others.
    """

    rank: int = 0
    world: int = 1
    accumulate: int = 1
    micro_batches: int | None = None

    @property
    def parts(self) -> int:
        return self.micro_batches or self.world * self.accumulate

    def numbers(self) -> range:
        each, more = divmod(self.parts, self.world)
        start = self.rank * each + min(self.rank, more)
        return range(start, start + each + (self.rank < more))


@dataclass(frozen=True)
class Work:
    """One worker's part of one step: the samples of its micro-batches, and how many the whole step has."""

    epoch: int
    start: int  # where the step's samples begin in the epoch's order
    micro: tuple[tuple[int, Indices], ...]  # (number of the micro-batch in the step, its samples)
    total: int  # samples of the step over all workers
    last: bool  # of its epoch

    @property
    def samples(self) -> int:
        """Samples of this worker."""
        return sum(len(indices) for _, indices in self.micro)


def epoch_work(
    seed: int, epoch: int, num_samples: int, batch: int, drop_last: bool, share: Share, start: int = 0
) -> Iterator[Work]:
    """The steps of an epoch from its sample `start` on, as one worker sees them. Nothing is replayed to get there."""
    order = epoch_order(seed, epoch, num_samples)
    count = num_batches(num_samples - start, batch, drop_last)
    for number in range(count):
        low, last = start + number * batch, number == count - 1
        high = num_samples if last and not drop_last else low + batch
        parts = split(order[low:high], share.parts)
        yield Work(epoch, low, tuple((i, parts[i]) for i in share.numbers()), high - low, last)
