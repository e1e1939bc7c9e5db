"""MXNet's RecordIO: NAME.rec with the images, NAME.idx with their offsets, NAME.lst with their labels.

Several labels of a sample are a vector of zeros and ones, one for each class.
"""

import struct
from pathlib import Path

from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.pack.endings import ending_of
from phalanx.data.sources.labelled import LabelRow
from phalanx.data.sources.manifest import FileEntry
from phalanx.errors import UserError

MAGIC = struct.pack("<I", 0xCED7230A)
MAX_BYTES = 2**29 - 1  # the length field has 29 bits
WHOLE, FIRST, MIDDLE, LAST = range(4)  # which part of a sample a record is


class RecShard:
    """The three files of a shard. A sample's number is its id, its key in .idx, and its number in .lst."""

    def __init__(self, stem: Path, classes: list[str]) -> None:
        self._classes = classes
        self._files: list[ChecksummedFile] = []
        try:
            for ending in (".rec", ".idx", ".lst"):
                self._files.append(ChecksummedFile(stem.with_name(stem.name + ending)))
        except OSError:
            self.abandon()
            raise

    @property
    def size(self) -> int:
        return self._files[0].sums.bytes

    def add(self, number: int, label: int | LabelRow, data: bytes) -> None:
        records, index, listing = self._files
        index.write(f"{number}\t{records.sums.bytes}\n".encode())
        file = f"{number:08d}.{ending_of(data)}"
        path = f"{self._classes[label]}/{file}" if isinstance(label, int) else file
        values = [label] if isinstance(label, int) else label.tolist()
        listing.write("\t".join([str(number), *(f"{value}.000000" for value in values), f"{path}\n"]).encode())
        # IRHeader: flag 0 says that the label is this one number; another one, how many values follow
        if isinstance(label, int):
            sample = struct.pack("<IfQQ", 0, label, number, 0) + data
        else:
            sample = struct.pack(f"<IfQQ{len(values)}f", len(values), 0.0, number, 0, *values) + data
        if len(sample) > MAX_BYTES:
            raise UserError(
                f"sample {number:,} does not fit into a .rec file",
                why=f"it has {len(sample):,} bytes, and a record has at most {MAX_BYTES:,}",
                remedy="pack with --resize, or as wds",
            )
        for record in framed_records(sample):
            records.write(record)

    def finish(self) -> list[FileEntry]:
        return [file.finish() for file in self._files]

    def abandon(self) -> None:
        for file in self._files:
            file.abandon()


def framed_records(sample: bytes) -> list[bytes]:
    """A sample as one or more records: split at each magic number at a multiple of four, which is left out."""
    places = []
    at = sample.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            places.append(at)
        at = sample.find(MAGIC, at + (4 if at % 4 == 0 else 1))
    starts, ends = [0, *(place + 4 for place in places)], [*places, len(sample)]
    framed = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        kind = WHOLE if not places else FIRST if i == 0 else LAST if i == len(places) else MIDDLE
        length = end - start
        framed.append(MAGIC + struct.pack("<I", kind << 29 | length) + sample[start:end] + bytes(-length % 4))
    return framed
