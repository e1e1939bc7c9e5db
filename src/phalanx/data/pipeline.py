"""The pipeline: order → read and frame → pixel operations → batches, made ahead by a background thread."""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import torch

from phalanx.data.augment.pixels import PixelOps
from phalanx.data.base import Batch, Framing, MicroBatch, Read, Source
from phalanx.data.gpu_copies import GpuCopies
from phalanx.data.order import Indices, Share, Work, epoch_order, epoch_work, num_batches, repeats_of
from phalanx.data.sampling import Sampler, Shuffled
from phalanx.data.sources.bad_images import BadImages
from phalanx.errors import UserError

# Several threads share the pixel operations of images with at least so many values. On smaller ones Python takes longer
# than the kernels, and threads wait for its lock: RandAugment of 128 images of 32² ran at 6,400 images/s with one
# thread, 4,000 with two.
WORTH_SHARING = 2**16


class Remote(Protocol):
    """Other processes that make the batches of a pipeline: the same batches, in the same order."""

    def batches(self, pipeline: "Pipeline", works: Iterator[Work]) -> Generator[Batch]: ...

    def stop(self) -> None:
        """End `batches`, which may be waiting for a batch. Called from another thread."""
        ...


class Pipeline:
    """One worker's batches of a training split: a pure function of (seed, epoch, start)."""

    def __init__(
        self,
        source: Source,
        framing: Framing,
        *,
        seed: int,
        batch: int,
        share: Share | None = None,
        drop_last: bool = False,
        pixels: PixelOps | None = None,
        threads: int = 1,
        prefetch: int = 3,
        bad: BadImages | None = None,
        gpu: torch.device | None = None,
        remote: "Remote | None" = None,
        sampler: Sampler | None = None,
        view_epochs: int | None = None,
    ) -> None:
        """`batch` counts the samples of a step over all workers; `threads` run the pixel operations.

        `sampler` has the samples of each epoch; by default it is every sample once.

        With `gpu`, micro-batches are in pinned memory and copied there, too.

        With `view_epochs`, so many epochs have views of their own; then they repeat, in another order of samples.

        With `remote`, other processes make the batches, and `prefetch` counts those that each of them makes ahead.
        """
        self.sampler = sampler or Shuffled(len(source))
        if batch > self.epoch_samples:  # training has made it smaller: `fit_batch`
            fitting = 2 ** (max(1, self.epoch_samples).bit_length() - 1)
            raise UserError(
                f"batch {batch} is larger than the {self.epoch_samples:,} samples of an epoch",
                why="a step's samples are train.global_batch_size, or train.batch_size × optim.accumulate × workers",
                remedy=f"{fitting} or less",
            )
        self.source, self.framing, self.seed, self.batch = source, framing, seed, batch
        self.share, self.drop_last, self.pixels = share or Share(), drop_last, pixels
        self.threads, self.prefetch = max(1, threads), prefetch
        self._copies = None if gpu is None else GpuCopies(gpu)
        self.bad, self.remote, self.view_epochs = bad or BadImages(source), remote, view_epochs

    @property
    def epoch_samples(self) -> int:
        return self.sampler.epoch_samples

    @property
    def steps_per_epoch(self) -> int:
        return num_batches(self.epoch_samples, self.batch, self.drop_last)

    def stream(self, epoch: int = 0, start: int = 0) -> Generator[Batch]:
        """Batches without end from sample `start` of `epoch` on; `last` marks the last batch of each epoch.

        So the next epoch's first batches are made while this one is evaluated. Close it to end its threads.
        """
        if start > self.epoch_samples:
            raise UserError(
                f"the run cannot go on from sample {start:,}: an epoch has {self.epoch_samples:,}",
                why="the data or data.sampling is not what it was when this position was saved",
                remedy="resume with the data and the sampling that the run began with",
            )
        if self.remote is not None:
            return in_background(self.remote.batches(self, self.works(epoch, start)), 1, self.remote.stop)
        return in_background(self._batches(epoch, start), self.prefetch)

    def works(self, epoch: int, start: int) -> Iterator[Work]:
        """What the steps from there on are made of, without end."""
        size = self.epoch_samples
        while True:
            order = self.sampler.order(self.seed, epoch)
            yield from epoch_work(self.seed, epoch, size, self.batch, self.drop_last, self.share, start, order)
            epoch, start = epoch + 1, 0

    def prepare(self, work: Work, pool: Executor | None = None) -> Batch:
        """The batch of one step, in the calling thread, with `pool` for the pixel operations."""
        return self.finish(work, *self.make(work, pool))

    def make(self, work: Work, pool: Executor | None = None) -> tuple[list[MicroBatch], list[tuple[int, str]]]:
        """The micro-batches of one step, and its bad images: a pure function, the same in every process."""
        micro, bad = [], []
        epoch = work.epoch if self.view_epochs is None else work.epoch % self.view_epochs
        for number, indices in work.micro:
            read = _read_repeats(self.source, indices, self.framing, epoch)
            bad += read.bad
            made = _micro_batch(number, read)
            if self.pixels is not None:
                made.images = _changed(made.images, self.pixels, read.indices, epoch, pool, self.threads)
            micro.append(made)
        return micro, bad

    def finish(self, work: Work, micro: list[MicroBatch], bad: list[tuple[int, str]]) -> Batch:
        """The batch of micro-batches that may come from elsewhere: counts bad images, starts copies to a GPU."""
        new = self.bad.count(bad)
        if self._copies is not None:
            micro = [_copied(_pinned(made), self._copies) for made in micro]
        return Batch(work.epoch, work.start, micro, work.total, work.last, bad=new)

    def _batches(self, epoch: int, start: int) -> Generator[Batch]:
        with self.pixel_pool() as pool:
            for work in self.works(epoch, start):
                yield self.prepare(work, pool)

    def pixel_pool(self) -> AbstractContextManager[Executor | None]:
        """Threads for the pixel operations, if there are any."""
        return _single_core_threads(self.threads) if self.pixels else nullcontext()


def evaluation_part(num_samples: int, share: Share, rank: int | None = None) -> Indices:
    """The samples that a worker evaluates, by default the worker of the share: neighbouring ones."""
    parts = np.array_split(np.arange(num_samples, dtype=np.int64), share.world)
    return parts[share.rank if rank is None else rank]


def evaluation_batches(
    source: Source,
    framing: Framing,
    batch: int,
    share: Share | None = None,
    *,
    prefetch: int = 3,
    bad: BadImages | None = None,
    pin: bool = False,
) -> Generator[Batch]:
    """A worker's slice of a split in order, every sample once: batches of one micro-batch. Bad images are left out."""
    share, tally = share or Share(), bad or BadImages(source)
    mine = evaluation_part(len(source), share)

    def batches() -> Generator[Batch]:
        for low in range(0, len(mine), batch):
            indices = mine[low : low + batch]
            read = _read(source, indices, framing, epoch=0, replace_bad=False)
            made = _micro_batch(0, read)
            last = low + batch >= len(mine)
            new = tally.count(read.bad)
            yield Batch(0, int(indices[0]), [_pinned(made) if pin else made], len(indices), last, bad=new)

    return in_background(batches(), prefetch)


def shuffled_batches(
    source: Source, framing: Framing, batch: int, share: Share, *, seed: int, prefetch: int = 3, pin: bool = False
) -> Generator[Batch]:
    """A worker's part of all samples, once each, in batches that are the same for any number of workers.

    About `batch` samples each, in an order that mixes the classes; worker r has batches r, r + world, …
    """
    order = epoch_order(seed, 0, len(source))
    parts = np.array_split(order, max(1, round(len(order) / batch)))

    def batches() -> Generator[Batch]:
        for number, indices in list(enumerate(parts))[share.rank :: share.world]:
            made = _micro_batch(0, _read(source, indices, framing, epoch=0, replace_bad=True))
            yield Batch(0, number, [_pinned(made) if pin else made], len(indices), number == len(parts) - 1)

    return in_background(batches(), prefetch)


def in_background(
    batches: Generator[Batch], prefetch: int, stop: Callable[[], None] = lambda: None
) -> Generator[Batch]:
    """The same batches, up to `prefetch` of them made ahead by a thread that ends with this generator.

    Exceptions of that thread are raised here, in their place among the batches. `stop` is called at the end.
    """
    room = threading.Semaphore(prefetch)
    made: SimpleQueue[Batch | BaseException | None] = SimpleQueue()
    stopped = False

    def produce() -> None:
        try:
            with closing(batches):
                while True:
                    room.acquire()
                    if stopped:
                        return
                    batch = next(batches, None)
                    made.put(batch)
                    if batch is None:
                        return
        except BaseException as error:
            made.put(error)

    # A daemon, so that a process whose storage hangs can still exit.
    thread = threading.Thread(target=produce, name="phalanx-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            asked = time.perf_counter()
            item = made.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            room.release()
            item.wait_s = time.perf_counter() - asked
            yield item
    finally:
        stopped = True
        stop()
        room.release()  # the thread may be waiting for room
        thread.join(timeout=60)


def _read(source: Source, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
    if len(indices):
        return source.read(indices, framing, epoch, replace_bad=replace_bad)
    empty = np.empty((0, framing.size, framing.size, source.channels), dtype=np.uint8)
    return Read(empty, source.labels[:0], indices)


def _read_repeats(source: Source, indices: Indices, framing: Framing, epoch: int) -> Read:
    """Samples for training, some of them perhaps repeats (see `drawn_order`): each repeat has a view of its own."""
    repeats, samples = repeats_of(indices, max(1, len(source)))
    if not repeats.any():
        return _read(source, indices, framing, epoch, replace_bad=True)
    images = np.empty((len(indices), framing.size, framing.size, source.channels), dtype=np.uint8)
    labels, used, bad = source.labels[samples], indices.copy(), []
    for repeat in np.unique(repeats).tolist():
        rows = np.flatnonzero(repeats == repeat)
        # Draws are addressed by epoch and sample, and no run has so many epochs.
        read = _read(source, samples[rows], framing, epoch + (repeat << 32), replace_bad=True)
        images[rows], labels[rows], used[rows] = read.images, read.labels, read.indices + repeat * len(source)
        bad += read.bad
    return Read(images, labels, used, bad)


def _micro_batch(number: int, read: Read) -> MicroBatch:
    """Tensors over the arrays' own memory: (n, h, w, c) seen as (n, c, h, w) is what torch calls channels last."""
    images = torch.from_numpy(read.images).permute(0, 3, 1, 2)
    return MicroBatch(number, images, torch.from_numpy(read.labels), torch.from_numpy(read.indices))


def _pinned(micro: MicroBatch) -> MicroBatch:
    """Pinned memory, which a GPU copies from asynchronously. Indices stay as they are: the CPU uses them."""
    return MicroBatch(micro.number, micro.images.pin_memory(), micro.labels.pin_memory(), micro.indices)


def _copied(micro: MicroBatch, copies: GpuCopies) -> MicroBatch:
    micro.on_gpu = copies.start(micro.images, micro.labels)
    return micro


def _changed(
    images: torch.Tensor, pixels: PixelOps, indices: Indices, epoch: int, pool: Executor | None, threads: int
) -> torch.Tensor:
    """The images after the pixel operations, channels last as before. Threads share the samples."""
    out = torch.empty_like(images)

    def change(rows: slice) -> None:
        out[rows] = pixels(images[rows], indices[rows], epoch)

    size = len(indices) if images[:1].numel() < WORTH_SHARING else math.ceil(len(indices) / threads)
    parts = [slice(low, low + size) for low in range(0, len(indices), max(1, size))]
    list(pool.map(change, parts) if pool else map(change, parts))
    return out


def _single_core_threads(count: int) -> ThreadPoolExecutor:
    """Threads whose torch kernels use one core each.

    By default each thread would start an OpenMP team as large as the trainer's, and the teams wait at each other's
    barriers: RandAugment at 224² took 17-100 ms an image that way and 2 ms this way, on two busy cores.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix="phalanx-pixels")
    default = torch.get_num_threads()
    all_started = threading.Barrier(count + 1)

    def use_one_core() -> None:
        torch.get_num_threads()  # a thread takes the default at its first call: make that happen before ours
        torch.set_num_threads(1)
        all_started.wait()  # until all threads have started: so each of them runs this once

    for _ in range(count):
        pool.submit(use_one_core)
    all_started.wait()
    # The number set last is also the default of threads that start later: restore it.
    torch.set_num_threads(default)
    return pool
