"""The pipeline: the same batches however they are made, errors in their place, and no thread left behind."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from phalanx.config.schema import AugmentConfig
from phalanx.data.augment.framing import PadCrop, RandomResizedCrop, Whole
from phalanx.data.augment.pixels import pixel_ops
from phalanx.data.base import Batch, Framing, Read
from phalanx.data.order import Indices, Share
from phalanx.data.pipeline import Pipeline, _single_core_threads, evaluation_batches
from phalanx.data.sampling import Balanced
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.folders import open_class_folders
from phalanx.errors import UserError

SIZE = 8
FRAMING = PadCrop(SIZE, 2, flip=0.5, seed=5)
PIXELS = pixel_ops(AugmentConfig(rotate=15, policy="randaugment", brightness=0.3), seed=5)


def images_of(count: int) -> ArraySource:
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    labels = np.arange(count, dtype=np.int64) % 4
    return array_source("made up", "made up", pixels, labels, list("abcd"), image_size=SIZE, channels=None)


class Troubled:
    """A source with bad images, or one that is slow, or one that fails: `before_read` is called with the number."""

    def __init__(
        self, count: int, bad: set[int] | None = None, before_read: Callable[[int], object] = lambda number: None
    ) -> None:
        inner = images_of(count)
        self.inner, self.bad, self.before_read, self.num_reads = inner, bad or set(), before_read, 0
        self.description, self.classes, self.labels = inner.description, inner.classes, inner.labels
        self.channels, self.image_size, self.mean, self.std = 3, SIZE, inner.mean, inner.std
        self.extent = inner.extent

    def __len__(self) -> int:
        return len(self.inner)

    def name(self, index: int) -> str:
        return f"picture-{index}.jpg"

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        self.num_reads += 1
        self.before_read(self.num_reads)
        met = [int(i) for i in indices if int(i) in self.bad]
        good = [int(i) for i in range(len(self)) if i not in self.bad]
        used = [good[0] if int(i) in self.bad else int(i) for i in indices if replace_bad or int(i) not in self.bad]
        read = self.inner.read(np.array(used, dtype=np.int64), framing, epoch, replace_bad=replace_bad)
        read.bad = [(i, "truncated") for i in met]
        return read


def pipeline(count: int = 50, batch: int = 12, share: Share | None = None, threads: int = 1) -> Pipeline:
    return Pipeline(images_of(count), FRAMING, seed=5, batch=batch, share=share, pixels=PIXELS, threads=threads)


def take(batches: Generator[Batch], count: int) -> list[Batch]:
    with closing(batches):
        return list(islice(batches, count))


def content(batches: list[Batch]) -> list[object]:
    """All that training sees of some batches, whoever's they are."""
    return [(b.epoch, b.start, b.total, b.last, pixels_of(b), labels_of(b)) for b in batches]


def labels_of(batch: Batch) -> list[int]:
    return [label for micro in batch.micro for label in micro.labels.tolist()]


def pixels_of(batch: Batch) -> bytes:
    return torch.cat([micro.images for micro in batch.micro]).numpy().tobytes()


def joined(shares: list[list[Batch]]) -> list[Batch]:
    """The batches of all workers put together, step by step."""
    steps = []
    for parts in zip(*shares, strict=True):
        first = parts[0]
        micro = [m for part in parts for m in part.micro]
        steps.append(Batch(first.epoch, first.start, micro, first.total, first.last))
    return steps


@pytest.fixture(autouse=True)
def no_thread_survives() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_workers_and_threads_do_not_change_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content(take(pipeline().stream(), 10))
    monkeypatch.setattr("phalanx.data.pipeline.WORTH_SHARING", 0)  # threads even for images as small as these
    for threads in (1, 3):
        shares = [take(pipeline(share=Share(rank, 3, 2), threads=threads).stream(), 10) for rank in range(3)]
        assert content(joined(shares)) == whole


def test_decoding_threads_do_not_change_the_batches(tmp_path: Path) -> None:
    """Files of different sizes, one of them broken, through the random-resized crop."""
    noise = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / label).mkdir()
        for number in range(8):
            height, width = 10 + number, 25 - number
            pixels = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    (tmp_path / "b" / "3.png").write_bytes(b"no image")

    def batches(share: Share, pool: Executor | None) -> list[Batch]:
        source = open_class_folders(tmp_path, channels=None, pool=pool)
        framing = RandomResizedCrop(SIZE, flip=0.5, seed=1)
        return take(Pipeline(source, framing, seed=1, batch=8, share=share, pixels=PIXELS).stream(), 4)

    whole = batches(Share(), None)
    with ThreadPoolExecutor(3) as pool:
        assert content(joined([batches(Share(rank, 2), pool) for rank in range(2)])) == content(whole)
    told = [name for batch in whole for name, _ in batch.bad]
    assert told == [str(tmp_path / "b" / "3.png")]


@pytest.mark.parametrize("stop", [1, 4, 5, 7])
def test_a_restart_goes_on_as_if_nothing_had_happened(stop: int) -> None:
    """Five steps an epoch: stops within one, at its end, and in the next."""
    unbroken = take(pipeline().stream(), 10)
    at = unbroken[stop]
    assert content(take(pipeline().stream(at.epoch, at.start), 10 - stop)) == content(unbroken[stop:])


def test_the_stream_runs_over_epoch_borders() -> None:
    batches = take(pipeline(25, 8).stream(), 7)  # the last batch takes the single sample that is left over
    assert [(b.epoch, b.start, b.total, b.last) for b in batches] == [
        (0, 0, 8, False),
        (0, 8, 8, False),
        (0, 16, 9, True),
        (1, 0, 8, False),
        (1, 8, 8, False),
        (1, 16, 9, True),
        (2, 0, 8, False),
    ]
    for epoch in (0, 1):
        seen = [i for b in batches if b.epoch == epoch for m in b.micro for i in m.indices.tolist()]
        assert sorted(seen) == list(range(25))
    assert pipeline(25, 8).steps_per_epoch == 3


def test_a_position_at_the_end_of_an_epoch_starts_the_next() -> None:
    assert content(take(pipeline(24, 8).stream(0, 24), 1)) == content(take(pipeline(24, 8).stream(1, 0), 1))
    with pytest.raises(UserError, match="cannot go on from sample 25"):
        pipeline(24, 8).stream(0, 25)


def test_images_are_channels_last_and_fit_their_labels() -> None:
    source = images_of(20)
    for pixels in (None, PIXELS):
        micro = take(Pipeline(source, Whole(SIZE), seed=0, batch=10, pixels=pixels).stream(), 1)[0].micro[0]
        assert micro.images.shape == (10, 3, SIZE, SIZE)
        assert micro.images.dtype == torch.uint8
        assert micro.images.permute(0, 2, 3, 1).is_contiguous()
        assert micro.labels.tolist() == (micro.indices % 4).tolist()
        untouched = torch.from_numpy(source.images[micro.indices.numpy()]).permute(0, 3, 1, 2)
        assert torch.equal(micro.images, untouched) == (pixels is None)


def test_empty_micro_batches_are_legal() -> None:
    batch = take(pipeline(9, 3, Share(1, 2, 2)).stream(), 1)[0]
    assert [(m.number, m.count) for m in batch.micro] == [(2, 0), (3, 0)]
    assert batch.micro[0].images.shape == (0, 3, SIZE, SIZE)
    assert batch.total == 3


def test_global_random_state_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    first, state = content(take(pipeline().stream(), 5)), torch.get_rng_state()
    torch.manual_seed(2)
    np.random.seed(2)
    assert content(take(pipeline().stream(), 5)) == first
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_pixel_threads_use_one_core_each_and_others_as_many_as_before() -> None:
    def seen_by_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as other:
            return other.submit(torch.get_num_threads).result()

    torch.set_num_threads(2)
    before = seen_by_a_new_thread()
    assert before == 2
    with _single_core_threads(3) as pool:
        assert {task.result() for task in [pool.submit(torch.get_num_threads) for _ in range(20)]} == {1}
        assert seen_by_a_new_thread() == before


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        Pipeline(images_of(1437), FRAMING, seed=0, batch=4096)
    assert refused.value.what == "batch 4096 is larger than the 1,437 samples of an epoch"
    assert refused.value.remedy.startswith("1024 or less")


# ── the background thread ──


def test_prefetching_is_bounded_and_waiting_is_measured() -> None:
    source = Troubled(60, before_read=lambda number: time.sleep(0.3 if number == 1 else 0.0))
    with closing(Pipeline(source, FRAMING, seed=0, batch=6, prefetch=3).stream()) as batches:
        first = next(batches)
        deadline = time.monotonic() + 5
        while source.num_reads < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert source.num_reads == 4  # the one taken and three ahead
        assert first.wait_s > 0.25
        assert next(batches).wait_s < 0.25


def test_closing_early_leaves_no_thread() -> None:
    for taken in (0, 1, 3):
        batches = pipeline(threads=2).stream()
        for _ in range(taken):
            next(batches)
        batches.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("phalanx")]
    batches = pipeline().stream()
    next(batches)
    del batches  # forgotten, not closed


def test_what_the_thread_raises_is_raised_in_its_place() -> None:
    def fail_at_third(number: int) -> None:
        if number == 3:
            raise OSError("the disk is gone")

    batches = Pipeline(Troubled(60, before_read=fail_at_third), FRAMING, seed=0, batch=6).stream()
    assert [next(batches).start, next(batches).start] == [0, 6]
    with pytest.raises(OSError, match="the disk is gone") as raised:
        next(batches)
    assert "fail_at_third" in "".join(traceback.format_tb(raised.value.__traceback__))
    with pytest.raises(StopIteration):
        next(batches)


def test_an_exception_of_the_consumer_ends_the_thread() -> None:
    def train() -> None:
        with closing(pipeline().stream()) as batches:
            for batch in batches:
                raise ValueError(f"loss is not a number at {batch.start}")

    with pytest.raises(ValueError, match="not a number at 0"):
        train()


def test_ctrl_c_while_waiting_ends_the_thread() -> None:
    released = threading.Event()
    source = Troubled(60, before_read=lambda number: number == 1 or released.wait(10))
    batches = Pipeline(source, FRAMING, seed=0, batch=6).stream()
    next(batches)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        released.set()

    def wait_for_the_next() -> None:
        threading.Timer(0.1, interrupt).start()
        next(batches)

    with pytest.raises(KeyboardInterrupt):
        wait_for_the_next()
    batches.close()
    assert source.num_reads == 2


# ── bad images ──


def test_bad_images_are_told_once_a_run() -> None:
    source = Troubled(200, bad={17})
    batches = take(Pipeline(source, FRAMING, seed=0, batch=50).stream(), 12)
    assert [told for batch in batches for told in batch.bad] == [("picture-17.jpg", "truncated")]
    assert all(batch.micro[0].count == 50 for batch in batches)


def test_a_bad_image_stops_where_it_should() -> None:
    source = Troubled(200, bad={17})
    stopping = Pipeline(source, FRAMING, seed=0, batch=50, bad=BadImages(source, "stop"))
    with pytest.raises(UserError) as stopped:
        take(stopping.stream(), 5)
    assert "picture-17.jpg" in stopped.value.what
    assert stopped.value.why == "truncated"
    assert "data.bad_images=skip" in stopped.value.remedy


@pytest.mark.parametrize(
    ("bad", "cap", "stops"), [(1, 0.0, False), (2, 0.01, False), (3, 0.01, True), (58, 0.29, False)]
)
def test_too_many_bad_images_stop_a_skipping_run(bad: int, cap: float, stops: bool) -> None:
    source = Troubled(200, bad=set(range(bad)))
    batches = Pipeline(source, FRAMING, seed=0, batch=50, bad=BadImages(source, "skip", cap)).stream()
    if stops:
        with pytest.raises(UserError, match="3 of 200 images are not readable, more than the 2"):
            take(batches, 12)
    else:
        assert len([told for batch in take(batches, 12) for told in batch.bad]) == bad


# ── evaluation ──


@pytest.mark.parametrize("world", [1, 3, 7])
def test_evaluation_sees_every_sample_once_in_order(world: int) -> None:
    source = images_of(20)
    parts = [list(evaluation_batches(source, Whole(SIZE), 4, Share(rank, world))) for rank in range(world)]
    seen = [i for part in parts for batch in part for i in batch.micro[0].indices.tolist()]
    assert seen == list(range(20))
    for part in parts:
        assert [batch.last for batch in part] == [False] * (len(part) - 1) + [True]
        assert all(batch.micro[0].count <= 4 for batch in part)
    images = torch.cat([batch.micro[0].images for part in parts for batch in part])
    assert torch.equal(images.permute(0, 2, 3, 1), torch.from_numpy(source.images))


def test_more_workers_than_samples_leave_some_without() -> None:
    assert list(evaluation_batches(images_of(2), Whole(SIZE), 4, Share(2, 3))) == []


def test_evaluation_leaves_bad_images_out_and_tells_them() -> None:
    source = Troubled(200, bad={3, 4, 5, 6, 150})
    tally = BadImages(source, cap=0.1)
    batches = list(evaluation_batches(source, Whole(SIZE), 4, bad=tally))
    assert sum(batch.micro[0].count for batch in batches) == 195
    assert [name for batch in batches for name, _ in batch.bad] == [f"picture-{i}.jpg" for i in (3, 4, 5, 6, 150)]
    again = list(evaluation_batches(source, Whole(SIZE), 4, bad=tally))
    assert not any(batch.bad for batch in again)


def test_an_evaluation_that_is_broken_off_leaves_no_thread() -> None:
    batches = evaluation_batches(images_of(40), Whole(SIZE), 4)
    next(batches)
    batches.close()


def test_repeats_of_a_sample_are_augmented_anew_and_are_the_same_wherever_they_are_made() -> None:
    source = images_of(40)
    source.labels[:] = np.where(np.arange(40) == 7, 1, 0)  # the one image of its class
    sampler = Balanced(source.labels)
    with closing(Pipeline(source, FRAMING, seed=5, batch=40, pixels=PIXELS, sampler=sampler).stream()) as batches:
        whole = next(batches).micro[0]
    rare = whole.images[whole.labels == 1]
    assert len(rare) == 20
    assert len({image.numpy().tobytes() for image in rare}) > 15
    for rank in range(2):
        pipeline = Pipeline(
            source, FRAMING, seed=5, batch=40, share=Share(rank, 2), pixels=PIXELS, threads=2, sampler=sampler
        )
        with closing(pipeline.stream()) as batches:
            part = next(batches).micro[0]
        assert torch.equal(part.images, whole.images[20 * rank : 20 * rank + 20])
        assert torch.equal(part.labels, whole.labels[20 * rank : 20 * rank + 20])
