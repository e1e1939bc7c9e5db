"""Decoded images, one after another, with an index at the end: what data/sources/raw.py maps into memory."""

import zlib
from pathlib import Path

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.sources.labelled import LabelRow
from phalanx.data.sources.manifest import FileEntry
from phalanx.data.sources.raw import ENTRY, trailer

ENDING = ".raw"


class RawShard:
    """A file of decoded images being written."""

    def __init__(self, stem: Path, channels: int) -> None:
        self._channels = channels
        self._file = ChecksummedFile(stem.with_name(stem.name + ENDING))
        self._entries: list[tuple[int, int, int, int, int]] = []
        self._bits: list[bytes] = []  # the labels of each image that may have several

    @property
    def size(self) -> int:
        return self._file.sums.bytes

    def add(self, number: int, label: int | LabelRow, data: Pixels) -> None:
        pixels = np.ascontiguousarray(data).data.cast("B")
        if not isinstance(label, int):
            self._bits.append(np.packbits(label.astype(np.uint8)).tobytes())
        first = label if isinstance(label, int) else 0
        self._entries.append((self.size, data.shape[0], data.shape[1], first, zlib.crc32(pixels)))
        self._file.write(pixels)

    def finish(self) -> list[FileEntry]:
        entries, bits, start = np.array(self._entries, dtype=ENTRY), b"".join(self._bits), self.size
        self._file.write(entries.tobytes() + bits)
        self._file.write(trailer(entries, self._channels, start, bits))
        return [self._file.finish()]

    def abandon(self) -> None:
        self._file.abandon()
