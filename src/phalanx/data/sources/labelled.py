"""The base of all sources on this machine: classes, labels, statistics, and subsets."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from phalanx.data.base import Framing, Read
from phalanx.data.order import Indices

Labels = npt.NDArray[np.int64]  # class numbers (n,); with data.multi_label 0 or 1 for each class (n, classes)
LabelRow = npt.NDArray[np.int64]  # the labels of one sample that may have several: 0 or 1 for each class
Part = Literal["train", "val"]


@dataclass(kw_only=True)
class Labelled(ABC):
    """A Source whose samples are on this machine. Formats implement `name`, `stored`, `read` and `subset`."""

    description: str
    classes: list[str]
    labels: Labels
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    extent: tuple[int, int] | None = None  # height and width, where the format has one for all images
    notes: tuple[str, ...] = ()  # for the user, about how the data was found
    left_out: tuple[tuple[str, str], ...] = ()  # (absolute path, reason) of files that the data names and lacks
    groups: list[str] | None = None  # data.group_field: what each sample belongs to, such as a patient
    containers: tuple[Path, ...] = ()  # files that hold many samples each, where a sample's name is not a file's

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def multi_label(self) -> bool:
        """Whether a sample may have several labels, or none."""
        return self.labels.ndim == 2

    def numbers_of(self, index: int) -> list[int]:
        """The classes of a sample, by number: one, or with `multi_label` any number of them."""
        label = self.labels[index]
        return np.flatnonzero(label).tolist() if self.multi_label else [int(label)]

    @abstractmethod
    def name(self, index: int) -> str: ...

    @abstractmethod
    def stored(self, index: int) -> bytes:
        """The sample's bytes as they are stored: a compressed image, or pixels. Raises OSError or BadImage."""

    @abstractmethod
    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read: ...

    @abstractmethod
    def subset(self, chosen: Indices) -> "Labelled":
        """The chosen samples as a split: a bad image is only replaced by another one of these."""

    def describe_part(self, chosen: Indices) -> str:
        return f"{len(chosen):,} samples of: {self.description}"


def class_counts(labels: Labels, num_classes: int) -> Labels:
    """How many samples have each class."""
    counts: Labels = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=num_classes)
    return counts


def multi_hot(labels: Sequence[Sequence[int]], num_classes: int) -> Labels:
    """Labels (n, classes) of samples that have several classes each: 1 for each class that a sample has."""
    out: Labels = np.zeros((len(labels), num_classes), dtype=np.int64)
    for row, numbers in enumerate(labels):
        out[row, list(numbers)] = 1
    return out


def without_zero(labels: Labels) -> tuple[str, ...]:
    """A note for the user if class numbers do not begin at 0: they stay as they are."""
    first = int(labels.min())
    if first == 0:
        return ()
    empty = "class 0 has" if first == 1 else f"classes 0 to {first - 1} have"
    return (f"labels begin at {first}: {empty} no samples",)
