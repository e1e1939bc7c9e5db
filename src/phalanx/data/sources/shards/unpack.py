"""Gzipped shards, which have no random access: they are unpacked once, into the user's cache folder."""

import gzip
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.data.sources.shards.file_cache import can_write_into, path_in_cache, process_lock
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes

GZIP = b"\x1f\x8b"
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
PIECE = 1 << 20
RESERVE = 256 << 20  # bytes of the disk that stay free


def readable_shards(paths: Sequence[Path]) -> list[Shard]:
    """The shards of these files, unpacked if they are gzipped: by content, not by name."""
    packed = [path for path in paths if _start(path).startswith(GZIP)]
    if not packed:
        return [Shard.of(path) for path in paths]
    total = sum(path.stat().st_size for path in packed)
    with megabytes(Console(stderr=True), f"unpacking {len(packed)} files", total) as advance:
        return [_unpacked(path, advance) if path in packed else Shard.of(path) for path in paths]


def start_of(path: Path, count: int) -> bytes:
    """The first bytes of a file, decompressed if it is gzipped; fewer if it is shorter or damaged."""
    with path.open("rb") as file:
        start = file.read(count)
        if not start.startswith(GZIP):
            return start
        try:
            return zlib.decompressobj(wbits=31).decompress(start + file.read(count + 1024), count)
        except zlib.error:
            return b""


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(8)
    for magic, name in OTHERS.items():
        if start.startswith(magic):
            raise UserError(
                f"{path} is compressed by {name}",
                why="gzip is the only compression of shards that is supported",
                remedy="unpack it; compression hardly makes images smaller",
            )
    return start


def _unpacked(path: Path, advance: Callable[[int], None]) -> Shard:
    stamp = Stamp.of(path)
    target = target_of(path, stamp)
    if not can_write_into(target.parent):
        raise UserError(
            f"{path} has to be unpacked, and there is no folder for it",
            why=f"{target.parent} cannot be written",
            remedy="unpack it yourself, or set XDG_CACHE_HOME to a folder with space",
        )
    with process_lock(target.parent, f"unpacking into {target.parent}"):
        if not target.exists():
            for old in target.parent.glob(f"{target.stem}.*"):  # of the same path, before it changed
                old.unlink(missing_ok=True)
            _unpack(path, target, advance)
    note = f"{path} is compressed and is read through a copy in {target.parent}; unpacked shards need none"
    return Shard(path, stamp, target, Stamp.of(target), (note,))


def target_of(path: Path, stamp: Stamp, part: str = "") -> Path:
    """Where a file, or a part of it, is unpacked to. A file that changes gets another place."""
    try:
        return path_in_cache(path, "unpacked", f"{part}.{stamp.size:x}-{stamp.mtime_ns:x}")
    except RuntimeError as error:
        raise UserError(
            f"{path} has to be unpacked, and there is no folder for it",
            why=str(error),
            remedy="unpack it yourself, or set XDG_CACHE_HOME to a folder with space",
        ) from error


def _unpack(path: Path, target: Path, advance: Callable[[int], None]) -> None:
    refuse_full_disk(path, target, path.stat().st_size)
    with path.open("rb") as packed:
        try:
            with write_atomically(target) as out:
                _copy(path, target, packed, out, advance)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{path} is damaged near offset {packed.tell():,}",
                why=f"it does not unpack: {error}",
                remedy="copy or download the file again",
            ) from error


def _copy(path: Path, target: Path, packed: BinaryIO, out: BinaryIO, advance: Callable[[int], None]) -> None:
    done = 0
    with gzip.GzipFile(fileobj=packed) as file:
        for number, piece in enumerate(iter(lambda: file.read(PIECE), b"")):
            if number % 64 == 0:
                refuse_full_disk(path, target, 0)
            out.write(piece)
            advance(packed.tell() - done)
            done = packed.tell()


def refuse_full_disk(path: Path, target: Path, needed: int) -> None:
    """Refuse to write where the disk has no room for so many bytes."""
    free = shutil.disk_usage(target.parent).free
    if free < needed + RESERVE:
        raise UserError(
            f"there is no space to unpack {path}",
            why=f"{target.parent} has {free / 1e9:.1f} GB left, and {RESERVE / 1e9:.2f} GB of it stay free",
            remedy="make space, unpack it yourself elsewhere, or set XDG_CACHE_HOME to a folder with space",
        )
