"""The base of all sources on this machine: classes, labels, statistics, and subsets."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from phalanx.data.base import Framing, Read
from phalanx.data.order import Indices

Labels = npt.NDArray[np.int64]
Part = Literal["train", "val"]


@dataclass(kw_only=True)
class Labelled(ABC):
    """A Source whose samples are on this machine. Formats implement `name`, `read` and `subset`."""

    description: str
    classes: list[str]
    labels: Labels
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    extent: tuple[int, int] | None = None  # height and width, where the format has one for all images
    notes: tuple[str, ...] = ()  # for the user, about how the data was found

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def name(self, index: int) -> str: ...

    @abstractmethod
    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read: ...

    @abstractmethod
    def subset(self, chosen: Indices) -> "Labelled":
        """The chosen samples as a split: a bad image is only replaced by another one of these."""

    def describe_part(self, chosen: Indices) -> str:
        return f"{len(chosen):,} samples of: {self.description}"
