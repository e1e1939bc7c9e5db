"""Decoded images, one after another, with an index at the end: what data/sources/raw.py maps into memory."""

import zlib
from pathlib import Path

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.sources.manifest import FileEntry
from phalanx.data.sources.raw import ENTRY, trailer

ENDING = ".raw"


class RawShard:
    """A file of decoded images being written."""

    def __init__(self, stem: Path, channels: int) -> None:
        self._channels = channels
        self._file = ChecksummedFile(stem.with_name(stem.name + ENDING))
        self._entries: list[tuple[int, int, int, int, int]] = []

    @property
    def size(self) -> int:
        return self._file.sums.bytes

    def add(self, number: int, label: int, data: Pixels) -> None:
        pixels = np.ascontiguousarray(data).data.cast("B")
        self._entries.append((self.size, data.shape[0], data.shape[1], label, zlib.crc32(pixels)))
        self._file.write(pixels)

    def finish(self) -> list[FileEntry]:
        entries, start = np.array(self._entries, dtype=ENTRY), self.size
        self._file.write(entries.tobytes())
        self._file.write(trailer(entries, self._channels, start))
        return [self._file.finish()]

    def abandon(self) -> None:
        self._file.abandon()
