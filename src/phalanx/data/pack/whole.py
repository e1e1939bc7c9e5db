"""Files that are whole or not there: written aside as NAME.part, summed on the way, synced, then renamed."""

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from phalanx.data.sources.file_cache import written_aside

PART = ".part"
BLOCK_BYTES = 2**20  # each has its own sum, so that damage has a place in the file and not only a file


class FileEntry(BaseModel):
    """What a finished file must be: its length, its SHA-256, and a CRC-32 of each MiB (8 hex digits each)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    bytes: int
    sha256: str
    blocks: str


class Sums:
    """Length and sums of bytes as they pass by."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sha = hashlib.sha256()
        self._blocks: list[int] = []

    def update(self, data: bytes | memoryview) -> None:
        self._sha.update(data)
        rest = memoryview(data)
        while len(rest):
            used = self.bytes % BLOCK_BYTES
            if not used:
                self._blocks.append(0)
            piece, rest = rest[: BLOCK_BYTES - used], rest[BLOCK_BYTES - used :]
            self._blocks[-1] = zlib.crc32(piece, self._blocks[-1])
            self.bytes += len(piece)

    def entry(self, name: str) -> FileEntry:
        blocks = "".join(f"{block:08x}" for block in self._blocks)
        return FileEntry(name=name, bytes=self.bytes, sha256=self._sha.hexdigest(), blocks=blocks)


class PartFile:
    """A file being written. Until `finish` it is called NAME.part, and no reader takes it for data."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sums = Sums()
        self._file = self._aside.open("wb")

    @property
    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + PART)

    def write(self, data: bytes | memoryview) -> None:
        self.sums.update(data)
        self._file.write(data)

    def finish(self) -> FileEntry:
        """On the disk under its own name; `sync_folder` makes the name last as well."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._aside.rename(self.path)
        return self.sums.entry(self.path.name)

    def abandon(self) -> None:
        """Leave nothing behind. What cannot be flushed any more (a full disk) is not wanted any more."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._aside.unlink()


def write_file(path: Path, data: bytes) -> None:
    """A small file, whole or not there, and on the disk when this returns."""
    with written_aside(path) as file:
        file.write(data)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damage(path: Path, wanted: FileEntry, advance: Callable[[int], None]) -> str:
    """What is wrong with a file, and where in it; empty where it is as it was written. `advance` hears of bytes."""
    try:
        length = path.stat().st_size
        sums = Sums()
        with path.open("rb") as file:
            while data := file.read(BLOCK_BYTES):
                sums.update(data)
                advance(len(data))
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    found = sums.entry(wanted.name)
    if found == wanted:
        return ""
    if length < wanted.bytes:
        return f"it ends at byte {length:,} of {wanted.bytes:,}{_first_other(found, wanted)}"
    if length > wanted.bytes:
        return f"it has {length:,} bytes, {wanted.bytes:,} were written"
    return f"it is not what was written{_first_other(found, wanted)}"


def _first_other(found: FileEntry, wanted: FileEntry) -> str:
    """Where the first block differs, as far as whole blocks are there to be compared."""
    for number in range(len(wanted.blocks) // 8):
        low, high = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, wanted.bytes)
        digits = slice(8 * number, 8 * number + 8)
        if high <= found.bytes and found.blocks[digits] != wanted.blocks[digits]:
            return f", first between bytes {low:,} and {high:,}"
    return ""
