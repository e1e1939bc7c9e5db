"""The rows of an array, read by number: at their offsets in the file, from memory, or from an unpacked copy."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import numpy as np
from rich.console import Console

from phalanx.data.sources.array_files.entry import ArrayEntry, Offsets, Values
from phalanx.data.sources.shards.shard_source import Files
from phalanx.data.sources.shards.unpack import CheckSpace, copy_in_cache
from phalanx.observe.progress import megabytes

IN_MEMORY_BYTES = 1 << 30  # a larger array that is compressed is unpacked into the cache folder instead


class Rows(Protocol):
    """Rows by number. Threads read at the same time."""

    def __getitem__(self, row: int) -> Values:
        """One row. Raises OSError or BadImage."""
        ...


@dataclass(frozen=True)
class RowsInFile:
    """Rows at their offsets in a file."""

    files: Files
    offsets: Offsets
    shape: tuple[int, ...]
    dtype: "np.dtype[np.generic]"

    def __getitem__(self, row: int) -> Values:
        count = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        data = self.files.read(0, int(self.offsets[row]), count)
        return np.frombuffer(data, self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class OpenRows:
    """Rows, and notes for the user about how they are read."""

    rows: Rows
    notes: tuple[str, ...] = ()


def open_rows(entry: ArrayEntry) -> OpenRows:
    """The rows of an array. What is compressed is loaded, or unpacked into the cache folder if it is large."""
    offsets = entry.offsets()
    if offsets is not None:
        return OpenRows(RowsInFile(Files([entry.file]), offsets, entry.shape[1:], entry.dtype), entry.file.notes)
    if entry.nbytes > IN_MEMORY_BYTES:
        return _unpacked(entry)
    with megabytes(Console(stderr=True), f"loading {entry.name} of {entry.file.path.name}", entry.nbytes) as advance:
        data = _collected(entry, advance)
    return OpenRows(np.frombuffer(data, entry.dtype).reshape(entry.shape), entry.file.notes)


def _collected(entry: ArrayEntry, advance: Callable[[int], None]) -> bytearray:
    data = bytearray()
    for piece in entry.pieces():
        data += piece
        advance(len(piece))
    return data


def _unpacked(entry: ArrayEntry) -> OpenRows:
    """The rows of an array in a file of their own, which is made once."""

    def write(out: BinaryIO, check_space: CheckSpace) -> None:
        what = f"unpacking {entry.name} of {entry.file.path.name}"
        with megabytes(Console(stderr=True), what, entry.nbytes) as advance:
            for piece in entry.pieces():
                out.write(piece)
                advance(len(piece))

    name = hashlib.sha256(entry.name.encode()).hexdigest()[:12]
    note = f"({entry.name}) is compressed and is read through a copy in"
    copy = copy_in_cache(entry.file.path, write, needed=entry.nbytes, note=note, variant=f".{name}")
    offsets = np.arange(entry.shape[0], dtype=np.int64) * entry.row_bytes
    return OpenRows(RowsInFile(Files([copy]), offsets, entry.shape[1:], entry.dtype), (*entry.file.notes, *copy.notes))
