"""WebDataset tars: for each sample NUMBER.cls, its class as a number, and NUMBER.jpg (.png, …), its bytes.

Where a sample may have several labels, NUMBER.json has them: {"labels": [3, 7]}.
"""

import json
import tarfile
from pathlib import Path

import numpy as np

from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.pack.endings import ending_of
from phalanx.data.sources.labelled import LabelRow
from phalanx.data.sources.manifest import FileEntry

ENDING = ".tar"


class WdsShard:
    """A tar being written. It has no times and owners: the same samples make the same bytes."""

    def __init__(self, stem: Path) -> None:
        self._file = ChecksummedFile(stem.with_name(stem.name + ENDING))

    @property
    def size(self) -> int:
        return self._file.sums.bytes

    def add(self, number: int, label: int | LabelRow, data: bytes) -> None:
        key = f"{number:08d}"
        if isinstance(label, int):
            self._member(f"{key}.cls", str(label).encode())
        else:
            self._member(f"{key}.json", json.dumps({"labels": np.flatnonzero(label).tolist()}).encode())
        self._member(f"{key}.{ending_of(data)}", data)

    def finish(self) -> list[FileEntry]:
        # two empty blocks end a tar; filled up to a whole record, as tar itself does
        end = 2 * tarfile.BLOCKSIZE
        self._file.write(bytes(end + -(self.size + end) % tarfile.RECORDSIZE))
        return [self._file.finish()]

    def abandon(self) -> None:
        self._file.abandon()

    def _member(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o644
        self._file.write(info.tobuf(tarfile.USTAR_FORMAT))
        self._file.write(data)
        self._file.write(bytes(-len(data) % tarfile.BLOCKSIZE))
