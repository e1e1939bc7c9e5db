"""Samplers for rare classes: each sample at least once, rare ones repeated, the same for every worker."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.schema import DataConfig
from phalanx.data.order import Share, epoch_work, repeats_of
from phalanx.data.sampling import make_sampler

Numbers = npt.NDArray[np.int64]
LABELS = np.repeat([0, 1, 3], [90, 9, 2]).astype(np.int64)  # no sample of class 2
LABEL_LISTS = st.lists(st.integers(0, 5), min_size=1, max_size=120).map(lambda found: np.array(found, dtype=np.int64))
GROWING = st.sampled_from(["oversample", "repeat-factor"])


def times(config: DataConfig, labels: Numbers, epoch: int = 1) -> Numbers:
    """How often each sample appears in an epoch."""
    order = make_sampler(config, labels).order(5, epoch)
    assert len(set(order.tolist())) == len(order), "each repeat has a number of its own"
    return np.bincount(repeats_of(order, len(labels))[1], minlength=len(labels)).astype(np.int64)


@given(labels=LABEL_LISTS, sampling=st.sampled_from(["shuffle", "balanced", "oversample", "repeat-factor"]))
@settings(deadline=None, max_examples=60)
def test_an_epoch_is_a_pure_function_and_as_long_as_told(labels: Numbers, sampling: str) -> None:
    config = DataConfig.model_validate({"sampling": sampling})
    order = make_sampler(config, labels).order(3, 4)
    assert len(order) == make_sampler(config, labels).epoch_samples
    assert np.array_equal(order, make_sampler(config, labels).order(3, 4))
    assert order.max() < len(labels) ** 2, "what data servers accept"


@given(labels=LABEL_LISTS, sampling=GROWING)
@settings(deadline=None, max_examples=60)
def test_every_sample_appears_and_those_of_a_class_equally_often(labels: Numbers, sampling: str) -> None:
    found = times(DataConfig.model_validate({"sampling": sampling}), labels)
    sizes = np.bincount(labels)
    for label in np.unique(labels):
        mine = found[labels == label]
        assert mine.min() >= 1
        assert mine.max() - mine.min() <= 1
        root = np.sqrt(sizes.max() * sizes[label])
        assert mine.sum() == (sizes.max() if sampling == "oversample" else round(float(root)))


def test_the_threshold_says_which_classes_are_rare() -> None:
    found = times(DataConfig(sampling="repeat-factor", repeat_threshold=0.1), LABELS)
    assert found[:90].tolist() == [1] * 90
    assert found[90:99].sum() == round(9 * np.sqrt(0.1 * 101 / 9))
    assert found[99:].sum() == round(2 * np.sqrt(0.1 * 101 / 2))


def test_which_samples_are_repeated_once_more_changes_with_the_epoch() -> None:
    config = DataConfig(sampling="repeat-factor")
    assert not np.array_equal(times(config, LABELS, 1), times(config, LABELS, 2))


@given(labels=LABEL_LISTS, sampling=GROWING, world=st.integers(1, 4), done=st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_workers_share_it_and_a_resumed_run_goes_on_in_it(
    labels: Numbers, sampling: str, world: int, done: int
) -> None:
    order = make_sampler(DataConfig.model_validate({"sampling": sampling}), labels).order(1, 0)
    start, seen = min(8 * done, len(order)), []
    for rank in range(world):
        share = Share(rank, world)
        for number, work in enumerate(epoch_work(1, 0, len(order), 8, False, share, start, order)):
            seen += [(number, micro, index) for micro, part in work.micro for index in part.tolist()]
    assert [index for _, _, index in sorted(seen, key=lambda one: one[:2])] == order[start:].tolist()


def test_the_rarest_label_of_a_sample_decides() -> None:
    # Classes with 8, 4 and 1 samples; one sample has the first and the last, one has none.
    labels = np.zeros((12, 3), dtype=np.int64)
    labels[:8, 0] = 1
    labels[7:11, 1] = 1
    labels[0, 2] = 1
    found = times(DataConfig(sampling="oversample"), labels)
    assert found.tolist() == [8, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 1]
    # Three places for each class and three for the sample without a label.
    balanced = times(DataConfig(sampling="balanced"), labels)
    assert (balanced.sum(), balanced[11]) == (12, 3)
