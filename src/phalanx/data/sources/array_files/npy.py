""".npy files, and the arrays in .npz files, which are zip archives of them."""

import contextlib
import io
import math
import os
import tokenize
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.archives.zip_directory import STORED, ZipMember, zip_members
from phalanx.data.sources.archives.zip_reading import Read, data_offset, pieces, unreadable
from phalanx.data.sources.array_files.entry import ArrayEntry, Offsets, Values, rows_at_a_time
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.window import Damaged, read_at
from phalanx.errors import UserError

ENDING = ".npy"
LONGEST_HEADER = 1 << 16


@dataclass(frozen=True)
class Header:
    """What an .npy file says of itself."""

    shape: tuple[int, ...]
    by_columns: bool  # Fortran's order
    dtype: np.dtype[Any]
    length: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """The header at the beginning of an .npy file. Raises ValueError."""
    version = np.lib.format.read_magic(file)
    # Version 3 only differs in how the names of a structure's fields are written.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, by_columns, dtype = read(file)
    except (SyntaxError, tokenize.TokenError, TypeError, MemoryError, RecursionError) as error:
        # A header is an expression of Python's: numpy leaves some errors of its parser as they are.
        raise ValueError(str(error) or type(error).__name__) from error
    if any(length < 0 for length in shape):
        raise ValueError(f"it has the shape {shape}")
    return Header(shape, by_columns and len(shape) > 1, dtype, file.tell())


@dataclass(frozen=True)
class NpyEntry(ArrayEntry):
    """An array whose values are in its file as they are in memory, from `start` on."""

    start: int
    by_columns: bool

    def offsets(self) -> Offsets | None:
        if self.by_columns:
            return None
        return self.start + np.arange(self.shape[0], dtype=np.int64) * self.row_bytes

    def load(self) -> Values:
        return np.array(self._mapped())

    def pieces(self) -> Iterator[bytes]:
        step = rows_at_a_time(self.row_bytes)
        for low in range(0, self.shape[0], step):
            yield self._mapped()[low : low + step].tobytes()

    def _mapped(self) -> Values:
        if not self.nbytes:
            return np.empty(self.shape, self.dtype)
        order: Any = "F" if self.by_columns else "C"
        return np.memmap(self.file.data, self.dtype, "r", self.start, self.shape, order)


@dataclass(frozen=True)
class DeflatedEntry(ArrayEntry):
    """An array of a compressed .npz."""

    member: ZipMember
    header: Header

    def offsets(self) -> None:
        return None

    def load(self) -> Values:
        data = bytearray()
        for piece in self._inflated():
            data += piece
        order: Any = "F" if self.header.by_columns else "C"
        values: Values = np.frombuffer(data, self.dtype).reshape(self.shape, order=order)
        return values

    def pieces(self) -> Iterator[bytes]:
        if self.header.by_columns:
            yield self.load().tobytes()
        else:
            yield from self._inflated()

    def _inflated(self) -> Iterator[bytes]:
        skip = self.header.length
        with _reading(self.file.data) as read, _damage_of(self.file.path, self.name):
            for piece in pieces(read, self.member):
                yield piece[skip:]
                skip = max(0, skip - len(piece))


@dataclass(frozen=True)
class ForbiddenEntry(ArrayEntry):
    """An array that is listed and never read: Python objects, which are pickles, or structures."""

    @property
    def kind(self) -> str:
        return "Python objects" if self.dtype.hasobject else "structures"

    def offsets(self) -> None:
        raise self._refused()

    def load(self) -> Values:
        raise self._refused()

    def pieces(self) -> Iterator[bytes]:
        raise self._refused()

    def _refused(self) -> UserError:
        if not self.dtype.hasobject:
            return UserError(
                f"the array {self.name} of {self.file.path} holds structures",
                why=f"each value has the fields {', '.join(self.dtype.names or ())}",
                remedy="save images and labels as arrays of their own",
            )
        return UserError(
            f"the array {self.name} of {self.file.path} holds Python objects",
            why="such arrays are pickles, which can run code when they are read: Phalanx never reads pickle",
            remedy="save numbers or text instead of objects: np.array(labels, dtype=str), images.astype(np.uint8)",
        )


def npy_entries(shard: Shard) -> list[ArrayEntry]:
    """The array of an .npy file, under the name of the file without its ending."""
    name = shard.path.name.removesuffix(".gz").removesuffix(ENDING)
    with shard.data.open("rb") as file:
        try:
            header = read_header(file)
        except ValueError as error:
            raise _damaged(shard.path, 0, f"its header cannot be read: {str(error)[:200]}") from error
    if header.dtype.hasobject or header.dtype.names:
        return [ForbiddenEntry(name, shard, header.shape, header.dtype)]
    found = shard.data_stamp.size - header.length
    if found < header.nbytes:
        why = f"its header announces {header.nbytes:,} bytes of values, and {found:,} follow"
        raise _damaged(shard.path, shard.data_stamp.size, why)
    return [NpyEntry(name, shard, header.shape, header.dtype, header.length, header.by_columns)]


def npz_entries(shard: Shard) -> list[ArrayEntry]:
    """The arrays of an .npz file, in the order in which they were saved."""
    with _reading(shard.data) as read, shard.data.open("rb", buffering=0) as file:
        try:
            members = [
                member for member in zip_members(file.fileno(), shard.data_stamp.size) if member.name.endswith(ENDING)
            ]
        except Damaged as damage:
            raise _damaged(shard.path, damage.offset, damage.why) from damage
        return [_npz_entry(shard, member, read) for member in members]


def _npz_entry(shard: Shard, member: ZipMember, read: Read) -> ArrayEntry:
    name = member.name.removesuffix(ENDING)
    if reason := unreadable(member):
        raise UserError(
            f"the array {name} of {shard.path} cannot be read",
            why=reason,
            remedy="save it with numpy: np.savez or np.savez_compressed",
        )
    with _damage_of(shard.path, name):
        try:
            header = read_header(io.BytesIO(_start(read, member)))
        except ValueError as error:
            raise BadImage(f"its header cannot be read: {str(error)[:200]}") from error
        if header.dtype.hasobject or header.dtype.names:
            return ForbiddenEntry(name, shard, header.shape, header.dtype)
        if header.length + header.nbytes != member.size:
            raise BadImage(f"its header announces {header.nbytes:,} bytes, and {member.size - header.length:,} follow")
        if member.method != STORED:
            return DeflatedEntry(name, shard, header.shape, header.dtype, member, header)
        start = data_offset(read, member) + header.length
        return NpyEntry(name, shard, header.shape, header.dtype, start, header.by_columns)


def _start(read: Read, member: ZipMember) -> bytes:
    """The beginning of a member, long enough for its header."""
    offset = data_offset(read, member)
    packed = read(offset, min(member.packed, LONGEST_HEADER))
    if member.method == STORED:
        return packed
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, LONGEST_HEADER)
    except zlib.error as error:
        raise BadImage(f"it does not unpack: {error}") from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Read]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(offset: int, count: int) -> bytes:
        data = read_at(descriptor, offset, count)
        if len(data) != count:
            raise BadImage(f"the file ends before offset {offset + count:,}")
        return data

    try:
        yield read
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _damage_of(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except BadImage as error:
        raise UserError(
            f"the array {name} of {path} is damaged", why=str(error), remedy="copy or download the file again"
        ) from error


def _damaged(path: Path, offset: int, why: str) -> UserError:
    return UserError(f"{path} is damaged at offset {offset:,}", why=why, remedy="copy or download the file again")
