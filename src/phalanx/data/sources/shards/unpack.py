"""Shards without random access, as gzipped ones: they are unpacked once, into the user's cache folder."""

import glob
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

CheckSpace = Callable[[], None]  # raises if the disk is nearly full


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
    def unpack(out: BinaryIO, check_space: CheckSpace) -> None:
        with path.open("rb") as packed:
            try:
                _copy(packed, out, check_space, advance)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise UserError(
                    f"{path} is damaged near offset {packed.tell():,}",
                    why=f"it does not unpack: {error}",
                    remedy="copy or download the file again",
                ) from error

    note = "is compressed (unpacked shards save the time) and is read through a copy in"
    return copy_in_cache(path, unpack, needed=path.stat().st_size, note=note)


def _copy(packed: BinaryIO, out: BinaryIO, check_space: CheckSpace, advance: Callable[[int], None]) -> None:
    done = 0
    with gzip.GzipFile(fileobj=packed) as file:
        for number, piece in enumerate(iter(lambda: file.read(PIECE), b"")):
            if number % 64 == 0:
                check_space()
            out.write(piece)
            advance(packed.tell() - done)
            done = packed.tell()


def copy_in_cache(
    path: Path, write: Callable[[BinaryIO, CheckSpace], None], *, needed: int, note: str, variant: str = ""
) -> Shard:
    """A file that is read through a copy in another form, which `write` makes once, in the user's cache folder.

    `needed` bytes have to fit on the disk. A path may have copies of several variants. Of several processes that start
    together, one makes the copy and the others wait for it.
    """
    stamp = Stamp.of(path)
    of_stamp = f".{stamp.size:x}-{stamp.mtime_ns:x}"
    target = _target(path, of_stamp + variant)
    if not can_write_into(target.parent):
        raise _no_folder(path, f"{target.parent} cannot be written")
    with process_lock(target.parent, f"unpacking into {target.parent}"):
        if not target.exists():
            stem = target.name.removesuffix(of_stamp + variant)
            for old in target.parent.glob(f"{glob.escape(stem)}.*"):
                if not old.name.startswith(stem + of_stamp):  # of the same path, before it changed
                    old.unlink(missing_ok=True)
            _refuse_full_disk(path, target, needed)
            with write_atomically(target) as out:
                write(out, lambda: _refuse_full_disk(path, target, 0))
    made = Stamp.of(target)
    return Shard(path, stamp, target, made, (f"{path} {note} {target.parent} ({made.size / 1e6:,.1f} MB)",))


def _target(path: Path, ending: str) -> Path:
    try:
        return path_in_cache(path, "unpacked", ending)
    except RuntimeError as error:
        raise _no_folder(path, str(error)) from error


def _no_folder(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} has to be unpacked, and there is no folder for it",
        why=why,
        remedy="unpack it yourself, or set XDG_CACHE_HOME to a folder with space",
    )


def _refuse_full_disk(path: Path, target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < needed + RESERVE:
        raise UserError(
            f"there is no space to unpack {path}",
            why=f"{target.parent} has {free / 1e9:.1f} GB left, and {RESERVE / 1e9:.2f} GB of it stay free"
            + (f"; {needed / 1e9:.1f} GB are needed" if needed else ""),
            remedy="make space, unpack it yourself elsewhere, or set XDG_CACHE_HOME to a folder with space",
        )
