"""Compressed shards have no random access: a gzipped one is unpacked once, into the user's cache folder."""

import gzip
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.data.sources.file_cache import can_write_into, kept_in_cache, one_at_a_time
from phalanx.data.sources.index import Stamp
from phalanx.data.sources.indexing import Shard
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes

GZIP = b"\x1f\x8b"
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
PIECE = 1 << 20
RESERVE = 256 << 20  # bytes of the disk that are left to others


def readable_shards(paths: Sequence[Path]) -> list[Shard]:
    """The shards of these files, unpacked where they are gzipped. The content decides, not the ending."""
    packed = [path for path in paths if _start(path).startswith(GZIP)]
    if not packed:
        return [Shard.of(path) for path in paths]
    total = sum(path.stat().st_size for path in packed)
    with megabytes(Console(stderr=True), f"unpacking {len(packed)} files", total) as tell:
        return [_unpacked(path, tell) if path in packed else Shard.of(path) for path in paths]


def start_of(path: Path, count: int) -> bytes:
    """The first bytes of a file, unpacked where it is gzipped; fewer where it is shorter or damaged."""
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
                why="of compressed shards only gzip is read",
                remedy="unpack it; images hardly get smaller by it",
            )
    return start


def _unpacked(path: Path, tell: Callable[[int], None]) -> Shard:
    stamp = Stamp.of(path)
    target = _target(path, stamp)
    if not can_write_into(target.parent):
        raise UserError(
            f"{path} has to be unpacked to be read, and there is no place for it",
            why=f"{target.parent} cannot be written",
            remedy="unpack it yourself, or let XDG_CACHE_HOME name a folder with space",
        )
    with one_at_a_time(target.parent, f"unpacking into {target.parent}"):
        if not target.exists():
            for old in target.parent.glob(f"{target.stem}.*"):  # of the same path, before it changed
                old.unlink(missing_ok=True)
            _unpack(path, target, tell)
    note = f"{path} is compressed and is read through a copy in {target.parent}; unpacked shards need none"
    return Shard(path, stamp, target, Stamp.of(target), (note,))


def _target(path: Path, stamp: Stamp) -> Path:
    try:
        return kept_in_cache(path, "unpacked", f".{stamp.size:x}-{stamp.mtime_ns:x}")
    except RuntimeError as error:
        raise UserError(
            f"{path} has to be unpacked to be read, and there is no place for it",
            why=str(error),
            remedy="unpack it yourself, or let XDG_CACHE_HOME name a folder with space",
        ) from error


def _unpack(path: Path, target: Path, tell: Callable[[int], None]) -> None:
    _refuse_full_disk(path, target, path.stat().st_size)
    with path.open("rb") as packed:
        try:
            with write_atomically(target) as out:
                _copy(path, target, packed, out, tell)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{path} is damaged near offset {packed.tell():,}",
                why=f"it does not unpack: {error}",
                remedy="copy or download the file again",
            ) from error


def _copy(path: Path, target: Path, packed: BinaryIO, out: BinaryIO, tell: Callable[[int], None]) -> None:
    told = 0
    with gzip.GzipFile(fileobj=packed) as file:
        for number, piece in enumerate(iter(lambda: file.read(PIECE), b"")):
            if number % 64 == 0:
                _refuse_full_disk(path, target, 0)
            out.write(piece)
            tell(packed.tell() - told)
            told = packed.tell()


def _refuse_full_disk(path: Path, target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < needed + RESERVE:
        raise UserError(
            f"there is no space to unpack {path}",
            why=f"{target.parent} has {free / 1e9:.1f} GB left, and {RESERVE / 1e9:.2f} GB of it are not touched",
            remedy="make space, unpack it yourself elsewhere, or let XDG_CACHE_HOME name a folder with space",
        )
