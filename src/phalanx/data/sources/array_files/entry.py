"""An array in a file: name, shape and type, known from headers alone, and the ways to its values."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.shards.indexing import Shard

Values = npt.NDArray[Any]
Offsets = npt.NDArray[np.int64]
MAX_LISTED = 12
PIECE_BYTES = 8 << 20  # of rows that are copied at a time


@dataclass(frozen=True)
class ArrayEntry(ABC):
    """An array that was found but not read. Its first dimension counts the samples."""

    name: str  # as its file calls it: `train_images`, `train/images`; the file's own name for an .npy
    file: Shard
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def holds_encoded(self) -> bool:
        """Whether a row is a compressed image instead of values."""
        return False

    @property
    def is_text(self) -> bool:
        return self.dtype.kind in "SU"

    @property
    def kind(self) -> str:
        """Its type in words."""
        return "text" if self.is_text else self.dtype.name

    def __str__(self) -> str:
        return f"{self.name} ({'×'.join(f'{side:,}' for side in self.shape) or 'one value'}, {self.kind})"

    @abstractmethod
    def offsets(self) -> Offsets | None:
        """Where each row begins in the file; None where rows are not stored one by one, as they are in memory."""

    @abstractmethod
    def load(self) -> Values:
        """All values."""

    @abstractmethod
    def pieces(self) -> Iterator[bytes]:
        """The same, row after row, a few megabytes at a time."""


def listed(entries: Sequence[ArrayEntry]) -> str:
    """The arrays that were found, for a message."""
    shown = ", ".join(map(str, entries[:MAX_LISTED]))
    return f"{shown} … ({len(entries)} in all)" if len(entries) > MAX_LISTED else shown or "none"


def rows_at_a_time(row_bytes: int) -> int:
    return max(1, PIECE_BYTES // max(1, row_bytes))
