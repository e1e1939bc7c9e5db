"""MXNet's RecordIO (.rec): records of a header with the label and a compressed image, one after the other.

A record is one or more parts: a magic number, three bits that say which part it is and 29 bits of length, the data,
and padding to 4 bytes. If data contains the magic number itself, at a multiple of 4, it is split there into parts and
the number is left out, so that it only ever marks the beginning of a part. Joining the parts puts it back.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.lists.labels import WHOLE_NUMBER
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.classes import BadLabel, number_label, one_of
from phalanx.data.sources.shards.index import LARGEST_SAMPLE, AnyLabel, Index, IndexBuilder, Label
from phalanx.data.sources.shards.indexing import Reader, Shard
from phalanx.data.sources.shards.label_sets import number_set, vector_set
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards
from phalanx.data.sources.window import Damaged, Window

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
PART = struct.Struct("<II")
HEADER = struct.Struct("<IfQQ")  # number of labels (0: the one that follows), label, two halves of an id
WHOLE, FIRST, MIDDLE, LAST = range(4)


def open_recordio(paths: list[Path], request: OpenRequest) -> ShardSource:
    """One dataset from .rec files. A .lst beside a file may name its classes; its .idx is not needed."""
    reader = RecordReader(request.config.label_element, request.config.multi_label)
    return open_shards(describe("RecordIO", paths), [Shard.of(path) for path in paths], reader, request)


def is_recordio(start: bytes) -> bool:
    return start.startswith(MAGIC_BYTES)


@dataclass(frozen=True)
class RecordReader(Reader):
    """Records of .rec files; `label_element` chooses one of several labels, `multi_label` takes all."""

    label_element: int | None
    multi_label: bool = False

    @property
    def fingerprint(self) -> str:
        return "recordio multi_label" if self.multi_label else f"recordio label_element={self.label_element}"

    def beside(self, path: Path) -> tuple[Path, ...]:
        return path.with_suffix(".lst"), path.with_suffix(".idx")

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        without_image = 0
        for record in _records(window):
            header = record.first(HEADER.size)
            num_labels = HEADER.unpack(header)[0] if len(header) == HEADER.size else 0
            image_at = HEADER.size + 4 * num_labels
            if record.size < image_at:
                raise Damaged(record.start, f"a record of {record.size} bytes cannot hold {num_labels:,} labels")
            if record.size == image_at:  # InsightFace has such records, as an index of a person's pictures
                without_image += 1
                continue
            if record.end - record.start > LARGEST_SAMPLE:
                raise Damaged(record.start, f"a record of {record.size:,} bytes is not an image")
            builder.add(record.start, record.end - record.start, self._label(window, record, num_labels))
        _refuse_cut_off(window)
        if without_image:
            builder.notes.append(f"{without_image:,} records without an image are left out")

    def _label(self, window: Window, record: "_Record", num_labels: int) -> AnyLabel:
        first = record.first(HEADER.size + 4 * num_labels)
        values = struct.unpack_from(f"<{num_labels}f", first, HEADER.size) if num_labels else HEADER.unpack(first)[1:2]
        try:
            if self.multi_label:
                return vector_set(values) if num_labels else number_set(values)
            return number_label(one_of(values, self.label_element))
        except BadLabel as error:
            raise error.of(f"the record at offset {record.start:,} of {window.path}") from error

    def finish(self, shard: Shard, builder: IndexBuilder) -> Index:
        folders = _listed_folders(shard.path.with_suffix(".lst"))
        named = [
            Label(label.number, folders.get(label.number or 0)) if isinstance(label, Label) else label
            for label in builder.labels
        ]
        return builder.index(named)

    def image(self, stored: bytes, mark: int) -> bytes:
        body = _joined(stored)
        if len(body) < HEADER.size:
            raise BadImage("its record is too short for a header")
        return body[HEADER.size + 4 * HEADER.unpack_from(body)[0] :]


@dataclass(slots=True)
class _Record:
    """One record: its offsets, the size of its data, and the data if it was joined from parts."""

    window: Window
    start: int
    end: int
    size: int
    joined: bytes | None

    def first(self, count: int) -> bytes:
        count = min(count, self.size)
        if self.joined is not None:
            return self.joined[:count]
        return self.window.bytes_at(self.start + PART.size, count, "a record")


def _records(window: Window) -> Iterator[_Record]:
    offset = 0
    while offset < window.size:
        flag, size, end = _part(window, offset)
        if flag == WHOLE:
            yield _Record(window, offset, end, size, None)
        elif flag == FIRST:
            end = _end_of_parts(window, offset, end)
            stored = window.bytes_at(offset, end - offset, "a record of several parts")
            joined = _joined(stored)
            yield _Record(window, offset, end, len(joined), joined)
        else:
            raise Damaged(offset, "a later part of a record comes without the first one")
        offset = end


def _part(window: Window, offset: int) -> tuple[int, int, int]:
    """(which part it is, size of its data, where the next one begins)."""
    place = window.at(offset, PART.size, "a record's header")
    magic, packed = PART.unpack_from(window.buffer, place)
    flag, size = packed >> 29, packed & 0x1FFFFFFF
    if magic != MAGIC or flag > LAST:
        raise Damaged(
            offset, f"a record should begin here, but the bytes are {window.buffer[place : place + 8].hex(' ')}"
        )
    end = offset + PART.size + size
    if end > window.size:
        left = window.size - offset - PART.size
        raise Damaged(offset, f"a record begins here, and the file ends {left:,} bytes into its {size:,}")
    return flag, size, min(end + -size % 4, window.size)


def _end_of_parts(window: Window, start: int, end: int) -> int:
    flag = FIRST
    while flag != LAST:
        if end - start > LARGEST_SAMPLE:
            raise Damaged(start, f"a record of more than {LARGEST_SAMPLE:,} bytes is not an image")
        flag, _, next_end = _part(window, end)
        if flag not in (MIDDLE, LAST):
            raise Damaged(end, f"the record at offset {start:,} has no last part, and another one begins here")
        end = next_end
    return end


def _joined(stored: bytes) -> bytes:
    """The data of a record, which was valid when it was indexed. Raises BadImage if it no longer is."""
    pieces, place = [], 0
    while place < len(stored):
        if len(stored) - place < PART.size:
            raise BadImage("its record ends within a header")
        magic, packed = PART.unpack_from(stored, place)
        begin, size = place + PART.size, packed & 0x1FFFFFFF
        if magic != MAGIC or begin + size > len(stored):
            raise BadImage("its record has no magic number")
        pieces.append(stored[begin : begin + size])
        place = begin + size + -size % 4
    return MAGIC_BYTES.join(pieces)


def _refuse_cut_off(window: Window) -> None:
    """Refuse a file that was cut off between two records, if its .idx lists records after its end."""
    listed = window.path.with_suffix(".idx")
    try:
        lines = listed.read_bytes().split(b"\n")
    except OSError:
        return
    columns = (line.split() for line in lines)
    offsets = (int(pair[1]) for pair in columns if len(pair) == 2 and pair[1].isdigit() and len(pair[1]) < 20)
    missing = sum(offset >= window.size for offset in offsets)
    if missing:
        raise Damaged(window.size, f"the file ends here, and {listed.name} lists {missing:,} records after that")


def folders_of_labels(lines: Iterable[bytes]) -> dict[int, str]:
    """The folder of each label in MXNet's list (`number<tab>label<tab>folder/file`), if each has a single one."""
    pairs = set[tuple[int, str]]()
    for line in lines:
        columns = line.rstrip(b"\r\n").split(b"\t")
        label = WHOLE_NUMBER.fullmatch(columns[1].decode(errors="replace")) if len(columns) == 3 else None
        if label is None or len(label[1]) > 9:
            return {}
        folder = os.fsdecode(columns[2]).rpartition("/")[0].rpartition("/")[2]
        pairs.add((int(label[1]), folder))
    folders = dict(pairs)
    one_by_one = len(folders) == len(pairs) == len(set(folders.values()))
    return folders if one_by_one and "" not in folders.values() else {}


def _listed_folders(path: Path) -> dict[int, str]:
    try:
        with path.open("rb") as file:
            return folders_of_labels(line for line in file if line.strip())
    except OSError:
        return {}
