"""Folds and grouped holdouts: no group divided, classes spread evenly, compared with scikit-learn."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from phalanx.data.sources.group_holdout import grouped_holdout
from phalanx.data.sources.stratify import grouped_folds, stratified_folds

Numbers = npt.NDArray[np.int64]
FOLDS = st.integers(2, 6)
LABELS = st.lists(st.integers(0, 4), min_size=6, max_size=150).map(lambda found: np.array(found, dtype=np.int64))


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Numbers, Numbers]:
    """Labels and groups, numbered in the order of their first samples."""
    labels = draw(LABELS)
    drawn = draw(st.lists(st.integers(0, 30), min_size=len(labels), max_size=len(labels)))
    number: dict[int, int] = {}
    return labels, np.array([number.setdefault(group, len(number)) for group in drawn], dtype=np.int64)


@given(labels=LABELS, folds=FOLDS)
@settings(deadline=None, max_examples=60)
def test_folds_have_as_many_of_each_class_or_one_more(labels: Numbers, folds: int) -> None:
    fold = stratified_folds(labels, folds)
    assert np.array_equal(fold, stratified_folds(labels, folds))
    for members in (np.ones(len(labels), dtype=bool), *(labels == label for label in np.unique(labels))):
        counts = np.bincount(fold[members], minlength=folds)
        assert counts.max() - counts.min() <= 1


@given(data=grouped(), folds=FOLDS)
@settings(deadline=None, max_examples=60)
def test_a_group_is_in_one_fold_and_no_fold_is_empty(data: tuple[Numbers, Numbers], folds: int) -> None:
    labels, groups = data
    fold = grouped_folds(labels, groups, folds)
    assert np.array_equal(fold, grouped_folds(labels, groups, folds))
    for group in np.unique(groups):
        assert len(np.unique(fold[groups == group])) == 1
    used = len(np.unique(fold))
    assert used == min(folds, len(np.unique(groups)))


@given(data=grouped(), folds=FOLDS)
@settings(deadline=None, max_examples=60)
def test_groups_of_one_class_are_spread_to_within_the_largest(data: tuple[Numbers, Numbers], folds: int) -> None:
    labels, groups = data
    pure = np.unique(groups * 5 + labels, return_inverse=True)[1].astype(np.int64)  # no group has two classes
    fold = grouped_folds(labels, pure, folds)
    for label in np.unique(labels):
        counts = np.bincount(fold[labels == label], minlength=folds)
        assert counts.max() - counts.min() <= np.bincount(pure[labels == label]).max()


def spread(labels: Numbers, fold: Numbers, folds: int) -> float:
    """The sum of the squared shares of classes: the more even, the smaller."""
    counts = np.stack([np.bincount(labels[fold == number], minlength=labels.max() + 1) for number in range(folds)])
    return float(((counts / np.maximum(1, counts.sum(axis=0))) ** 2).sum())


@pytest.mark.parametrize("seed", range(6))
def test_folds_are_as_even_as_those_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = np.unique(random.zipf(1.6, 600).clip(max=200) + random.integers(0, 80, 600), return_inverse=True)[1]
    groups = groups.astype(np.int64)
    labels = ((groups * 7 + random.integers(0, 3, 600)) % 6).astype(np.int64)
    theirs = np.empty(600, dtype=np.int64)
    for number, (_, chosen) in enumerate(StratifiedGroupKFold(5).split(labels, labels, groups)):
        theirs[chosen] = number
    assert spread(labels, grouped_folds(labels, groups, 5), 5) <= 1.02 * spread(labels, theirs, 5)


def test_several_labels_are_spread_over_folds() -> None:
    labels = (np.random.default_rng(0).random((300, 5)) < [0.5, 0.3, 0.2, 0.1, 0.05]).astype(np.int64)
    fold = stratified_folds(labels, 5)
    counts = np.stack([labels[fold == number].sum(axis=0) for number in range(5)])
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 3
    assert np.ptp(np.bincount(fold)) <= 6


@given(data=grouped(), share=st.floats(0.05, 0.6))
@settings(deadline=None, max_examples=80)
def test_a_holdout_has_whole_groups_and_leaves_every_class_one(data: tuple[Numbers, Numbers], share: float) -> None:
    labels, groups = data
    chosen = grouped_holdout(labels, groups, share)
    assert np.array_equal(chosen, grouped_holdout(labels, groups, share))
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    assert not set(groups[chosen].tolist()) & set(groups[rest].tolist())
    assert set(labels[rest].tolist()) == set(labels.tolist())


@given(labels=LABELS, share=st.floats(0.05, 0.6))
@settings(deadline=None, max_examples=60)
def test_groups_of_one_sample_give_each_class_its_share(labels: Numbers, share: float) -> None:
    chosen = grouped_holdout(labels, np.arange(len(labels)), share)
    for label in np.unique(labels):
        there, held = int((labels == label).sum()), int((labels[chosen] == label).sum())
        wanted = min(max(share * there, min(1, there - 1)), there - 1)
        assert abs(held - wanted) <= 0.5 + 1e-9


def test_a_class_that_validation_lacks_gets_its_smallest_group() -> None:
    # Class 1 has groups of 5 and 6 of its 11 samples: both are far from a tenth.
    labels = np.repeat([0, 1, 1], [100, 6, 5]).astype(np.int64)
    groups = np.concatenate([np.arange(100) // 5, np.full(6, 20), np.full(5, 21)]).astype(np.int64)
    chosen = grouped_holdout(labels, groups, 0.1)
    assert np.bincount(labels[chosen]).tolist() == [10, 5]
