"""The rows of an array, read by number: at their offsets in the file, from memory, or from an unpacked copy."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.data.sources.array_files.entry import ArrayEntry, Offsets, Values
from phalanx.data.sources.shards.file_cache import can_write_into, process_lock
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.shard_source import Files
from phalanx.data.sources.shards.unpack import refuse_full_disk, target_of
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError
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
    target = _target(entry)
    if not can_write_into(target.parent):
        raise UserError(
            f"{entry.name} of {entry.file.path} has to be unpacked, and there is no folder for it",
            why=f"{target.parent} cannot be written, and {entry.nbytes / 1e9:.1f} GB do not stay in memory",
            remedy="save the array uncompressed, or set XDG_CACHE_HOME to a folder with space",
        )
    with process_lock(target.parent, f"unpacking into {target.parent}"):
        if Stamp.of(target).size != entry.nbytes:
            for old in target.parent.glob(f"{target.stem}.*"):  # of the same array, before it changed
                old.unlink(missing_ok=True)
            refuse_full_disk(entry.file.path, target, entry.nbytes)
            what = f"unpacking {entry.name} of {entry.file.path.name}"
            with megabytes(Console(stderr=True), what, entry.nbytes) as advance, write_atomically(target) as out:
                for piece in entry.pieces():
                    out.write(piece)
                    advance(len(piece))
    stamp = Stamp.of(target)
    files = Files([Shard(entry.file.path, entry.file.stamp, target, stamp)])
    offsets = np.arange(entry.shape[0], dtype=np.int64) * entry.row_bytes
    note = f"{entry.name} of {entry.file.path} is compressed and is read through a copy in {target.parent}"
    return OpenRows(RowsInFile(files, offsets, entry.shape[1:], entry.dtype), (*entry.file.notes, note))


def _target(entry: ArrayEntry) -> Path:
    name = hashlib.sha256(entry.name.encode()).hexdigest()[:12]
    return target_of(entry.file.path, entry.file.stamp, f".{name}")
