"""Folds of a dataset: every class is spread evenly over them, and samples of one group stay together.

Pure functions of labels and groups, the same for every seed and every worker. Groups are numbers in the order of their
first samples, so that nothing depends on their names.
"""

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.random import bits
from phalanx.data.sources.labelled import Labels

Row = list[tuple[int, int]]  # (class, samples of it) of a group


def stratified_folds(labels: Labels, folds: int) -> Indices:
    """The fold of each sample, from 0: each has as many samples of a class as any other, or one more."""
    if labels.ndim == 2:  # no order of samples serves several classes at once
        return grouped_folds(labels, np.arange(len(labels)), folds)
    order = np.lexsort((random_keys(len(labels)), labels))  # class by class, in random order within each
    fold: Indices = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds  # on from class to class: so the folds are equally large, too
    return fold


def grouped_folds(labels: Labels, groups: Indices, folds: int) -> Indices:
    """The fold of each sample, with whole groups; classes are as even over the folds as a greedy choice gets.

    Groups that weigh most go first, each into the fold that has least of its classes, as in scikit-learn's
    StratifiedGroupKFold.
    """
    rows, sizes = group_rows(labels, groups)
    weights = 1.0 / np.maximum(1, sizes) ** 2
    have, total = np.zeros((folds, len(sizes))), np.zeros(folds)
    chosen: Indices = np.empty(len(rows), dtype=np.int64)
    for group in _heaviest_first(rows, sizes):
        if not rows[group]:  # samples without a label
            chosen[group] = int(np.argmin(total))
            total[chosen[group]] += 1
            continue
        classes, counts = np.array(rows[group]).T
        # What the choice adds to the sum of the squared shares of classes, apart from what any fold would add.
        load = have[:, classes] @ (counts * weights[classes])
        fold = int(np.lexsort((total, load))[0])
        chosen[group] = fold
        have[fold, classes] += counts
        total[fold] += counts.sum()
    return chosen[groups]


def group_rows(labels: Labels, groups: Indices) -> tuple[list[Row], Indices]:
    """(the classes of each group, the samples of each class)."""
    if labels.ndim == 2:
        samples, classes = np.nonzero(labels)
        num_classes = labels.shape[1]
    else:
        samples, classes = np.arange(len(labels)), labels
        num_classes = int(labels.max(initial=-1)) + 1
    rows: list[Row] = [[] for _ in range(int(groups.max(initial=-1)) + 1)]
    pairs, counts = np.unique(groups[samples] * num_classes + classes, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        rows[pair // num_classes].append((pair % num_classes, count))
    return rows, np.bincount(classes, minlength=num_classes).astype(np.int64)


def _heaviest_first(rows: list[Row], sizes: Indices) -> list[int]:
    """Groups in the order of the largest share of a class that they have; in random order where it is the same."""
    shares = np.array([max((count / sizes[label] for label, count in row), default=0.0) for row in rows])
    return [int(group) for group in np.lexsort((random_keys(len(rows)), -shares))]


def random_keys(count: int) -> Indices:
    """Random numbers by which samples or groups are ordered."""
    # The name of the stream decides the draws: another one would change the folds of every dataset.
    return bits(0, "folds", 0, np.arange(count, dtype=np.int64))[:, 0].astype(np.int64)
