"""The order of samples: a pure function of (seed, epoch, number of samples or labels). Rank and world only select."""

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


def balanced_order(seed: int, epoch: int, labels: Indices) -> Indices:
    """An epoch in which all classes that have samples appear equally often; as many samples as there are.

    A large class shows a part of its samples, a small one repeats them: each as often as any other of its class, or
    once more.
    """
    present = np.flatnonzero(np.bincount(labels))
    # Which classes get one place more where the division leaves a rest is drawn for each epoch.
    ranks = np.argsort(bits(seed, "class order", epoch, np.arange(len(present)))[:, 0], kind="stable")
    shares = np.zeros(present[-1] + 1, dtype=np.int64)
    shares[present] = len(labels) // len(present)
    shares[present[ranks[: len(labels) % len(present)]]] += 1
    return drawn_order(seed, epoch, labels, shares)


def drawn_order(seed: int, epoch: int, labels: Indices, shares: Indices) -> Indices:
    """An epoch in which each class has so many places, over which its samples are dealt out as evenly as possible.

    A repeat has the number of its sample plus a multiple of the number of samples, so that its augmentation is drawn
    anew; `repeats_of` takes the two apart.
    """
    count = len(labels)
    places = epoch_order(seed, epoch, count)
    by_class = places[np.argsort(labels[places], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=len(shares)))
    parts = zip(np.split(by_class, ends[:-1]), shares.tolist(), strict=True)
    drawn = np.concatenate([_cycled(samples, size, count) for samples, size in parts if size])
    keys = bits(seed, "balanced order", epoch, np.arange(len(drawn), dtype=np.int64))[:, 0]
    order: Indices = drawn[np.argsort(keys, kind="stable")]
    return order


def balanced_set_order(seed: int, epoch: int, labels: Indices) -> Indices:
    """A balanced epoch of samples that may have several labels (n, classes): each class is drawn equally often.

    A place of the epoch belongs to one class, and a sample with that class takes it; samples without a label count as
    a class of their own. A sample may be drawn for each of its classes, so its other classes come up more often.
    """
    count = len(labels)
    places = epoch_order(seed, epoch, count)
    marked = np.concatenate([labels != 0, ~labels.any(axis=1, keepdims=True)], axis=1)[places]
    samples = [places[column] for column in marked.T if column.any()]
    # Which classes get one place more where the division leaves a rest is drawn for each epoch.
    ranks = np.argsort(bits(seed, "class order", epoch, np.arange(len(samples)))[:, 0], kind="stable")
    shares = np.full(len(samples), count // len(samples))
    shares[ranks[: count % len(samples)]] += 1
    parts = zip(samples, shares.tolist(), strict=True)
    keys = bits(seed, "balanced order", epoch, np.arange(count, dtype=np.int64))[:, 0]
    drawn = (
        np.concatenate([_cycled(part, size, count) for part, size in parts])[np.argsort(keys, kind="stable")] % count
    )
    # Repeats are numbered over all classes, in the order of the epoch: each has an augmentation of its own.
    by_sample = np.argsort(drawn, kind="stable")
    sizes = np.bincount(drawn, minlength=count)
    repeat = np.empty(count, dtype=np.int64)
    repeat[by_sample] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order: Indices = drawn + repeat * count
    return order


def _cycled(samples: Indices, size: int, count: int) -> Indices:
    """`size` samples of a class, in turn; each further turn is marked by adding `count`."""
    turn, place = np.divmod(np.arange(size, dtype=np.int64), len(samples))
    cycled: Indices = samples[place] + turn * count
    return cycled


def repeats_of(indices: Indices, num_samples: int) -> tuple[Indices, Indices]:
    """(which repeat of its sample each is, from 0; the samples)."""
    return np.divmod(indices, num_samples)


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
    seed: int,
    epoch: int,
    num_samples: int,
    batch: int,
    drop_last: bool,
    share: Share,
    start: int = 0,
    order: Indices | None = None,
) -> Iterator[Work]:
    """The steps of an epoch from its sample `start` on, as one worker sees them. Nothing is replayed to get there.

    `order` are the epoch's `num_samples` samples, where it is not the order of a shuffled epoch.
    """
    order = epoch_order(seed, epoch, num_samples) if order is None else order
    count = num_batches(num_samples - start, batch, drop_last)
    for number in range(count):
        low, last = start + number * batch, number == count - 1
        high = num_samples if last and not drop_last else low + batch
        parts = split(order[low:high], share.parts)
        yield Work(epoch, low, tuple((i, parts[i]) for i in share.numbers()), high - low, last)
