"""Fetched images on this machine's disk: each with a checksum, since a crash may leave any part of a file."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import struct
import zlib
from pathlib import Path
from threading import Lock

from rich.console import Console

from phalanx.observe.tables import print_line

RESERVE = 1 << 30  # bytes of the disk that stay free
TRAILER = struct.Struct("<II8s")  # CRC-32 and length of the content, modulo 2³²; magic
MAGIC = b"PHALANX\1"
COUNTED_BYTES = 32 << 20  # written by a process before it tells the others


class ObjectStore:
    """Objects by name and version, in a folder that several processes share.

    When the disk or `most_bytes` is full, nothing more is kept: each epoch needs every image once, so that keeping
    other ones in their place would save nothing.
    """

    def __init__(self, folder: Path, most_bytes: int | None) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._usage = folder / "usage"
        self._uncounted, self._count_at = 0, 0  # the first write looks at the disk
        self.is_full = False
        self._counting = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, key: str) -> bytes | None:
        """The content, or None if it is not there or damaged."""
        try:
            stored = self._path(key).read_bytes()
        except OSError:
            return None
        if len(stored) < TRAILER.size:
            return None
        crc, length, magic = TRAILER.unpack_from(stored, len(stored) - TRAILER.size)
        data = stored[: -TRAILER.size]
        sound = magic == MAGIC and length == len(data) & 0xFFFFFFFF and zlib.crc32(data) == crc
        return data if sound else None

    def holds(self, key: str) -> bool:
        return self._path(key).exists()

    def write(self, key: str, data: bytes) -> None:
        """Keep the content, if there is room. A disk that fills up is no error: it can be fetched again."""
        if self.is_full:
            return
        path = self._path(key)
        temporary = path.with_name(f".{os.getpid()}-{os.urandom(4).hex()}")
        try:
            if not self._has_room(len(data)):
                return
            path.parent.mkdir(exist_ok=True)
            # Not synced: the checksum tells what a crash left, and an image can be fetched again.
            temporary.write_bytes(data + TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF, MAGIC))
            temporary.replace(path)
        except OSError:
            self.is_full = True
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _path(self, key: str) -> Path:
        name = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return self._folder / name[:2] / name[2:]

    def _has_room(self, count: int) -> bool:
        with self._counting:
            self._uncounted += count
            if not self.is_full and self._uncounted >= self._count_at:
                self._look_at_disk()
        return not self.is_full

    def _look_at_disk(self) -> None:
        used, free = self._count(), shutil.disk_usage(self._folder).free
        self._count_at = COUNTED_BYTES if self._most_bytes is None else min(COUNTED_BYTES, self._most_bytes // 16)
        self.is_full = free < RESERVE or (self._most_bytes is not None and used > self._most_bytes)
        if self.is_full:
            limit = f"{free / 1e9:.1f} GB of the disk are free" if free < RESERVE else "data.cache_gb is reached"
            text = f"images are not kept any more in {self._folder} and are fetched again each time: {limit}"
            print_line(Console(stderr=True), text)

    def _count(self) -> int:
        """Tell the other processes what this one wrote; the bytes of all."""
        with self._usage.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read().strip()
            used = (int(text) if text.isdigit() else 0) + self._uncounted
            file.seek(0)
            file.truncate()
            file.write(str(used))
        self._uncounted = 0
        return used
