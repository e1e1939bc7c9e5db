"""The order of samples: complete, pure, the same however it is shared out, and restartable anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.order import (
    Share,
    Work,
    balanced_order,
    epoch_order,
    epoch_work,
    num_batches,
    repeats_of,
    split,
)

SAMPLES = st.integers(1, 300)
BATCH = st.integers(1, 64)


def samples_of(work: Work) -> list[int]:
    return [index for _, indices in work.micro for index in indices.tolist()]


@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10_000), num_samples=st.integers(0, 500))
@settings(deadline=None)
def test_an_epoch_is_a_permutation_and_pure(seed: int, epoch: int, num_samples: int) -> None:
    order = epoch_order(seed, epoch, num_samples)
    assert sorted(order.tolist()) == list(range(num_samples))
    assert np.array_equal(order, epoch_order(seed, epoch, num_samples))


def test_epochs_and_seeds_differ() -> None:
    orders = [epoch_order(seed, epoch, 1000) for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).mean() < 0.02


@given(num_samples=SAMPLES, batch=BATCH, world=st.integers(1, 5), accumulate=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_shares_together_are_the_whole_step(num_samples: int, batch: int, world: int, accumulate: int) -> None:
    whole = list(epoch_work(1, 2, num_samples, batch, False, Share()))
    shares = [
        list(epoch_work(1, 2, num_samples, batch, False, Share(rank, world, accumulate))) for rank in range(world)
    ]
    for number, work in enumerate(whole):
        parts = [share[number] for share in shares]
        assert [sample for part in parts for sample in samples_of(part)] == samples_of(work)
        assert {(part.start, part.total, part.last) for part in parts} == {(work.start, work.total, work.last)}
        numbers = [i for part in parts for i, _ in part.micro]
        assert numbers == list(range(world * accumulate))
    assert sorted(sample for work in whole for sample in samples_of(work)) == list(range(num_samples))


@given(num_samples=SAMPLES, batch=BATCH, world=st.integers(1, 5), more=st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_micro_batches_stay_the_same_on_any_number_of_workers(
    num_samples: int, batch: int, world: int, more: int
) -> None:
    parts = world + more
    alone = list(epoch_work(1, 2, num_samples, batch, False, Share(micro_batches=parts)))
    shares = [Share(rank, world, micro_batches=parts) for rank in range(world)]
    sizes = [len(share.numbers()) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    works = [list(epoch_work(1, 2, num_samples, batch, False, share)) for share in shares]
    for number, work in enumerate(alone):
        together = [micro for worker in works for micro in worker[number].micro]
        assert [i for i, _ in together] == list(range(parts))
        assert all((mine == whole).all() for (_, mine), (_, whole) in zip(together, work.micro, strict=True))


@given(num_samples=SAMPLES, batch=BATCH, steps=st.integers(0, 20), drop_last=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_restart_gives_the_same_rest(num_samples: int, batch: int, steps: int, drop_last: bool) -> None:
    whole = list(epoch_work(3, 0, num_samples, batch, drop_last, Share()))
    steps = min(steps, len(whole))
    done = whole[steps].start if steps < len(whole) else sum(work.total for work in whole)
    rest = list(epoch_work(3, 0, num_samples, batch, drop_last, Share(), start=done))
    assert [(w.start, w.total, w.last, samples_of(w)) for w in rest] == [
        (w.start, w.total, w.last, samples_of(w)) for w in whole[steps:]
    ]


@given(num_samples=SAMPLES, batch=BATCH, used=st.integers(0, 300), other_batch=BATCH)
@settings(max_examples=60, deadline=None)
def test_going_on_with_another_batch_size_loses_nothing(
    num_samples: int, batch: int, used: int, other_batch: int
) -> None:
    used = min(used - used % batch, num_samples)
    before = epoch_order(3, 0, num_samples)[:used].tolist()
    after = [s for work in epoch_work(3, 0, num_samples, other_batch, False, Share(), used) for s in samples_of(work)]
    assert sorted(before + after) == list(range(num_samples))


@pytest.mark.parametrize(
    ("num_samples", "batch", "drop_last", "totals"),
    [
        (10, 5, False, [5, 5]),
        (11, 5, False, [5, 6]),  # one sample alone has no variance for batch norm
        (12, 5, False, [5, 5, 2]),
        (12, 5, True, [5, 5]),
        (1, 5, False, [1]),
        (4, 5, True, []),
        (3, 1, False, [1, 1, 1]),
    ],
)
def test_the_tail_of_an_epoch(num_samples: int, batch: int, drop_last: bool, totals: list[int]) -> None:
    works = list(epoch_work(0, 0, num_samples, batch, drop_last, Share()))
    assert [work.total for work in works] == totals
    assert len(totals) == num_batches(num_samples, batch, drop_last)
    assert [work.last for work in works] == [False] * (len(totals) - 1) + [True] * bool(totals)


@given(samples=st.integers(0, 50), parts=st.integers(1, 12))
@settings(deadline=None)
def test_no_part_holds_a_single_sample_unless_it_is_all_there_is(samples: int, parts: int) -> None:
    pieces = split(np.arange(samples), parts)
    assert len(pieces) == parts
    assert np.concatenate(pieces).tolist() == list(range(samples))
    if samples > 1:
        assert all(len(piece) != 1 for piece in pieces)
    counts = [len(piece) for piece in pieces if len(piece)]
    assert not counts or max(counts) - min(counts) <= 1


LABELS = np.array([0] * 90 + [1] * 9 + [3] * 2, dtype=np.int64)  # no sample of class 2


def test_a_balanced_epoch_has_all_classes_equally_often() -> None:
    order = balanced_order(5, 1, LABELS)
    assert len(order) == len(LABELS)
    assert len(set(order.tolist())) == len(order)  # each repeat has a number of its own
    repeats, samples = repeats_of(order, len(LABELS))
    counts = np.bincount(LABELS[samples], minlength=4)
    assert counts[2] == 0
    assert sorted(counts[[0, 1, 3]].tolist()) == [33, 34, 34]
    for label, most in ((0, 1), (1, 4), (3, 17)):
        times = np.unique(samples[LABELS[samples] == label], return_counts=True)[1]
        assert times.max() - times.min() <= 1
        assert times.max() == most
    assert repeats.max() == 16


def test_a_balanced_order_is_a_pure_function_and_another_one_each_epoch() -> None:
    assert np.array_equal(balanced_order(5, 1, LABELS), balanced_order(5, 1, LABELS))
    assert not np.array_equal(balanced_order(5, 1, LABELS), balanced_order(5, 2, LABELS))
    large = [set(balanced_order(5, epoch, LABELS).tolist()) & set(range(90)) for epoch in (1, 2)]
    assert large[0] != large[1]


def test_workers_share_a_balanced_epoch() -> None:
    order = balanced_order(1, 0, LABELS)
    whole = [work.micro[0][1] for work in epoch_work(1, 0, 101, 10, False, Share(), order=order)]
    for rank in range(2):
        share = Share(rank, 2)
        mine = [work.micro[0][1] for work in epoch_work(1, 0, 101, 10, False, share, order=order)]
        assert all(
            np.array_equal(part, all_[rank * 5 : rank * 5 + len(part)])
            for part, all_ in zip(mine[:-1], whole, strict=False)
        )
