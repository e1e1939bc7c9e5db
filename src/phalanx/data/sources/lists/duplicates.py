"""Files that a list names several times: one sample with all their labels, or told if their labels differ."""

import os

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.folders import Names
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.lists.labels import SEVERAL


def without_repeated(
    names: Names, hashes: npt.NDArray[np.int64], labels: Labels, classes: list[str]
) -> tuple[Names, Labels, tuple[str, ...]]:
    """(names, labels, notes). A single-label list may repeat files, such as those of rare classes."""
    return _united(names, labels) if labels.ndim == 2 else (names, labels, _conflicts(names, hashes, labels, classes))


def _united(names: Names, labels: Labels) -> tuple[Names, Labels, tuple[str, ...]]:
    """Multi-label: all rows of a file are one sample, with the labels of each (a row per label, as in Open Images)."""
    place: dict[bytes, int] = {}
    sample = np.array([place.setdefault(name, len(place)) for name in names], dtype=np.int64)
    if len(place) == len(names):
        return names, labels, ()
    together: Labels = np.zeros((len(place), labels.shape[1]), dtype=np.int64)
    np.maximum.at(together, sample, labels)
    note = f"{len(names):,} rows name {len(place):,} files: each file has the labels of all its rows"
    return Names(place), together, (note,)


def _conflicts(names: Names, hashes: npt.NDArray[np.int64], labels: Labels, classes: list[str]) -> tuple[str, ...]:
    """A note if files are named with several labels. It compares hashes: a set of all names takes far more memory."""
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    first = order[same][labels[order[same]] != labels[order[same + 1]]]
    if not len(first):
        return ()
    example = int(first.min())
    known = sorted({classes[label] for label in labels[hashes == hashes[example]].tolist()})
    count = len(np.unique(hashes[first]))
    name = os.fsdecode(names[example])
    return (
        f"{count:,} files are listed with different labels, such as {name} ({', '.join(known[:3])}); "
        f"{SEVERAL} gives a file all of them",
    )
