"""Checksums of packed files: taken while a file is written, compared when it is verified."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from phalanx.atomic import AtomicFile
from phalanx.data.sources.manifest import FileEntry, Manifest
from phalanx.data.sources.packed_folders import listed_images

BLOCK_BYTES = 2**20  # each has its own checksum, so that a report of damage can name the place in the file


class Sums:
    """Length and checksums of bytes, piece by piece."""

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


def damaged_files(folder: Path, manifest: Manifest, advance: Callable[[int], None]) -> Iterator[tuple[Path, str]]:
    """The damaged files of a packed folder, each with its damage. `advance` is called with the bytes checked."""
    for shards in manifest.splits.values():
        for shard in shards:
            reasons = [(folder / file.name, damage(folder / file.name, file, advance)) for file in shard.files]
            if shard.image_bytes is not None and not any(reason for _, reason in reasons):
                images = listed_images(folder, [shard])
                reasons += [(folder / name, _damage_of_image(folder / name, sha, advance)) for sha, name in images]
            yield from ((path, reason) for path, reason in reasons if reason)


def _damage_of_image(path: Path, sha256: str, advance: Callable[[int], None]) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    advance(len(data))
    return "" if hashlib.sha256(data).hexdigest() == sha256 else "it is not what was written"


def damage(path: Path, expected: FileEntry, advance: Callable[[int], None]) -> str:
    """The damage of a file and its place, or empty. `advance` is called with the number of bytes checked."""
    try:
        length = path.stat().st_size
        sums = Sums()
        with path.open("rb") as file:
            while data := file.read(BLOCK_BYTES):
                sums.update(data)
                advance(len(data))
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    found = sums.entry(expected.name)
    if found == expected:
        return ""
    if length < expected.bytes:
        return f"it ends at byte {length:,} of {expected.bytes:,}{_first_other(found, expected)}"
    if length > expected.bytes:
        return f"it has {length:,} bytes, {expected.bytes:,} were written"
    return f"it is not what was written{_first_other(found, expected)}"


def _first_other(found: FileEntry, expected: FileEntry) -> str:
    """The place of the first block that differs, as far as the file has whole blocks."""
    for number in range(len(expected.blocks) // 8):
        low, high = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, expected.bytes)
        digits = slice(8 * number, 8 * number + 8)
        if high <= found.bytes and found.blocks[digits] != expected.blocks[digits]:
            return f", first between bytes {low:,} and {high:,}"
    return ""
