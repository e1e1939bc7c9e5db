"""Checksums of packed files: taken while a file is written, compared when it is verified."""

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from phalanx.atomic import AtomicFile

BLOCK_BYTES = 2**20  # each has its own checksum, so that a report of damage can name the place in the file


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


class ChecksummedFile:
    """A file that is written atomically, with its checksums. It gets its name in `finish`."""

    def __init__(self, path: Path) -> None:
        self.sums = Sums()
        self._writing = AtomicFile(path)

    def write(self, data: bytes | memoryview) -> None:
        self.sums.update(data)
        self._writing.file.write(data)

    def finish(self) -> FileEntry:
        self._writing.commit()
        return self.sums.entry(self._writing.path.name)

    def abandon(self) -> None:
        self._writing.discard()


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
