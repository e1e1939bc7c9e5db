"""The index of a file: offset, length and label of each sample, found in one pass and cached in a small file.

A million samples take 18 MB. A cached index is used only if this version made it, for a file of this size and time,
with these settings, and if it is complete and every sample is within the file. Otherwise it is made again.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.stamp import Stamp

MAGIC = b"PHALANX INDEX 1\n"  # another number when the format or a reader changes
PREAMBLE = struct.Struct("<16sIIQ")  # magic, checksum of the rest, length of the head, number of samples
COLUMNS = (("offsets", "<u8"), ("lengths", "<u4"), ("labels", "<i4"), ("marks", "<u2"))
LARGEST_SAMPLE = 1 << 30  # a larger one is a damaged length


@dataclass(frozen=True)
class Label:
    """A label in the data: a number, a name, or a number with its name."""

    number: int | None
    name: str | None = None


@dataclass(frozen=True)
class LabelSet:
    """The labels of a sample that may have several, or none.

    With `width` they are the ones of a vector of so many zeros and ones; if it is not `sure`, the two values of such a
    vector may also be the class numbers 0 and 1.
    """

    labels: tuple[Label, ...]
    width: int = 0
    sure: bool = True


AnyLabel = Label | LabelSet


@dataclass(frozen=True)
class Fit:
    """What an index is made from: the reader with its settings, and the stamps of the file and those beside it."""

    reader: str
    stamps: tuple[Stamp, ...]


@dataclass(frozen=True)
class Index:
    """The samples of one file, in its order. `labels` are positions in `table`; `marks` belong to the format."""

    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    labels: npt.NDArray[np.int32]
    marks: npt.NDArray[np.uint16]
    table: list[AnyLabel]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def in_file_order(self) -> "Index":
        order = np.argsort(self.offsets, kind="stable")
        return replace(self, **{name: getattr(self, name)[order] for name, _ in COLUMNS})

    def to_bytes(self, fit: Fit) -> bytes:
        head = {
            "reader": fit.reader,
            "stamps": [[stamp.size, stamp.mtime_ns] for stamp in fit.stamps],
            "table": [_saved(label) for label in self.table],
            "notes": self.notes,
        }
        written = json.dumps(head).encode()
        columns = [np.asarray(getattr(self, name), dtype=kind).tobytes() for name, kind in COLUMNS]
        rest = b"".join([written, *columns])
        return PREAMBLE.pack(MAGIC, zlib.crc32(rest), len(written), len(self)) + rest


def read_index(data: bytes, fit: Fit) -> Index | None:
    """The cached index, or None if it is damaged or does not fit."""
    if len(data) < PREAMBLE.size:
        return None
    magic, checksum, head_length, count = PREAMBLE.unpack_from(data)
    rest = memoryview(data)[PREAMBLE.size :]
    row_bytes = sum(np.dtype(kind).itemsize for _, kind in COLUMNS)
    if magic != MAGIC or len(rest) != head_length + count * row_bytes or zlib.crc32(rest) != checksum:
        return None
    head: dict[str, Any] = json.loads(bytes(rest[:head_length]))  # its checksum is right, so it is as we wrote it
    if head["reader"] != fit.reader or head["stamps"] != [[stamp.size, stamp.mtime_ns] for stamp in fit.stamps]:
        return None
    columns, place = dict[str, npt.NDArray[Any]](), int(head_length)
    for name, kind in COLUMNS:
        columns[name] = np.frombuffer(rest, kind, count, place)
        place += columns[name].nbytes
    index = Index(**columns, table=[_loaded(entry) for entry in head["table"]], notes=head["notes"])
    return index if _is_sound(index, fit.stamps[0].size) else None


def _saved(label: AnyLabel) -> list[Any] | dict[str, Any]:
    if isinstance(label, Label):
        return [label.number, label.name]
    return {"labels": [[each.number, each.name] for each in label.labels], "width": label.width, "sure": label.sure}


def _loaded(entry: list[Any] | dict[str, Any]) -> AnyLabel:
    if isinstance(entry, list):
        return Label(*entry)
    return LabelSet(tuple(Label(*each) for each in entry["labels"]), entry["width"], entry["sure"])


def _is_sound(index: Index, file_size: int) -> bool:
    """Whether every sample is within the file, so that reading by the index is safe."""
    if not len(index):
        return True
    inside = bool(np.all(index.offsets <= file_size)) and bool(np.all(index.lengths <= LARGEST_SAMPLE))
    return (
        inside
        and bool(np.all(index.offsets + index.lengths <= file_size))
        and int(index.labels.min()) >= 0
        and int(index.labels.max()) < len(index.table)
    )


class IndexBuilder:
    """Collects the samples that a reader finds."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._rows: list[tuple[int, int, int, int]] = []
        self._blocks: list[npt.NDArray[np.int64]] = []
        self._codes: dict[AnyLabel, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, length: int, label: AnyLabel, mark: int = 0) -> None:
        self._rows.append((offset, length, self._codes.setdefault(label, len(self._codes)), mark))
        self._count += 1
        if len(self._rows) == 1 << 16:  # tuples take ten times the bytes of an array
            self._pack()

    def index(self, labels: Sequence[AnyLabel] | None = None) -> Index:
        """The index of the samples so far; `labels` replace the distinct labels, in the order of their first use."""
        self._pack()
        rows = np.concatenate([np.zeros((0, 4), dtype=np.int64), *self._blocks])
        return Index(
            rows[:, 0].astype(np.uint64),
            rows[:, 1].astype(np.uint32),
            rows[:, 2].astype(np.int32),
            rows[:, 3].astype(np.uint16),
            table=list(self._codes) if labels is None else list(labels),
            notes=self.notes,
        )

    @property
    def labels(self) -> list[AnyLabel]:
        return list(self._codes)

    def _pack(self) -> None:
        if self._rows:
            self._blocks.append(np.array(self._rows, dtype=np.int64))
            self._rows = []
