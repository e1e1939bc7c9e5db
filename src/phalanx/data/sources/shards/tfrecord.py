"""TFRecord: records with checksums, each a tf.train.Example with an image and its label.

A record is its length (8 bytes), the checksum of the length, the data, and the checksum of the data. Lengths are
checked before they are used; data when the index is made and at each read.
"""

import contextlib
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.classes import (
    BadLabel,
    not_one_hot,
    number_label,
    one_hot_class,
    one_of,
    refuse_names,
    text_label,
)
from phalanx.data.sources.shards.index import LARGEST_SAMPLE, AnyLabel, Index, IndexBuilder
from phalanx.data.sources.shards.indexing import Reader, Shard
from phalanx.data.sources.shards.label_sets import number_set, text_set
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards, with_pixels
from phalanx.data.sources.shards.tf_example import (
    BadExample,
    Feature,
    SequenceExample,
    bytes_of,
    features_of,
    kind_of,
    numbers_of,
)
from phalanx.data.sources.shards.tf_fields import IMAGE_FIELDS, LABEL_FIELDS, SLIM_LABEL, Fields, find_fields
from phalanx.data.sources.shards.unpack import readable_shards
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
FILE_NAME = "image/filename"
FROM_SLIM = 1  # the mark of samples whose labels may be counted from 1
LOOKED_AT = 64  # records, to find the fields and the range of pixels
MOST_BYTES = 64 << 20  # of these records


def open_tfrecord(paths: list[Path], request: OpenRequest) -> ShardSource:
    """One dataset from TFRecord files."""
    config, shards = request.config, readable_shards(paths)
    examples = _first_examples(shards)
    if examples:
        fields = find_fields(str(paths[0]), examples, config)
    else:  # the scan says what is wrong
        fields = Fields(config.image_field or IMAGE_FIELDS[0], config.label_field or LABEL_FIELDS[0])
    given = listed_classes(paths[0].parent, config.label_field or "label")
    if given is None and fields.one_hot:
        given = [str(number) for number in range(fields.one_hot)]
    reader = ExampleReader(fields, config.label_element, config.multi_label)
    source = open_shards(describe("TFRecord", paths), shards, reader, request, given=given)
    source = replace(source, notes=(*source.notes, fields.note))
    return source if fields.pixels is None else with_pixels(source, request)


def _first_examples(shards: Sequence[Shard]) -> list[Mapping[str, Feature]]:
    """The first good records of a dataset. Whatever else is found, the scan reports."""
    found: list[Mapping[str, Feature]] = []
    for shard in shards:
        with shard.data.open("rb", buffering=0) as file, contextlib.suppress(Damaged):
            window, offset = Window(shard.path, file.fileno(), shard.data_stamp.size), 0
            while offset < window.size:
                place, size = _record(window, offset)
                if len(found) == LOOKED_AT or (found and offset > MOST_BYTES):
                    return found
                if _checksum_fits(window.buffer, place, size):
                    with contextlib.suppress(BadExample):
                        found.append(_example(shard.path, window.buffer, place, size))
                offset += LENGTH.size + size + CHECKSUM.size
        if found:
            return found
    return found


def _example(path: Path, data: bytes, place: int, size: int) -> Mapping[str, Feature]:
    try:
        return features_of(data, place, place + size)
    except SequenceExample as error:
        raise UserError(
            f"the records of {path} are of tf.train.SequenceExample",
            why="each is a sequence, as the frames of a video, and a classifier takes single images",
            remedy="write a tf.train.Example for each image, with an image and a label",
        ) from error


def is_tfrecord(start: bytes) -> bool:
    return len(start) >= LENGTH.size and _length_of(start, 0) is not None


def listed_classes(folder: Path, label_field: str) -> list[str] | None:
    """The class names that TFDS (a name per line) or TF-Slim (number:name) writes beside its files."""
    name = f"{label_field.replace('/', '-')}.labels.txt"
    for file in (folder / name, folder / "features" / name):
        if lines := _lines(file):
            return lines
    pairs = [line.partition(":") for line in _lines(folder / "labels.txt")]
    if pairs and [pair[0] for pair in pairs] == [str(number) for number in range(len(pairs))]:
        return [pair[2].strip() for pair in pairs]
    return None


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return []


@dataclass(frozen=True)
class ExampleReader(Reader):
    """Examples in TFRecord files."""

    fields: Fields
    label_element: int | None
    multi_label: bool = False

    @property
    def fingerprint(self) -> str:
        fields = self.fields
        named = f"image={fields.image!r} label={fields.label!r} name={fields.class_name!r} one_hot={fields.one_hot}"
        labels = "multi_label" if self.multi_label else f"label_element={self.label_element}"
        return f"tfrecord {named} {labels}"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        offset, fields, label = 0, self.fields, None
        without_image, failing = 0, []
        mark = FROM_SLIM if fields.label == SLIM_LABEL and not fields.one_hot else 0
        label_of = functools.lru_cache(4096)(self._label)  # records of a class have the same one
        while offset < window.size:
            place, size = _record(window, offset)
            start, data = offset, window.buffer
            offset += LENGTH.size + size + CHECKSUM.size
            if not _checksum_fits(data, place, size):
                failing.append(start)
            else:
                try:
                    features = features_of(data, place, place + size)
                    image, value = features.get(fields.image), features.get(fields.label)
                    if image is None or kind_of(image) == "nothing":
                        without_image += 1
                        continue
                    if value is None:
                        raise BadLabel("there is none")
                    name = features.get(fields.class_name) if fields.class_name else None
                    label = label_of(numbers_of(value), bytes_of(value), bytes_of(name) if name else ())
                except BadLabel as error:
                    raise error.of(f"the record at offset {start:,} of {window.path}") from error
                except BadExample as error:
                    raise Damaged(start, f"the record here is not a tf.train.Example: {error}") from error
            # A failing record is replaced whenever it is read, so any existing label will do.
            if label is not None:
                builder.add(start, offset - start, label, mark)
        if without_image:
            builder.notes.append(f"{without_image:,} records without an image are left out")
        if failing:
            shown = ", ".join(f"{start:,}" for start in failing[:5]) + (" …" if len(failing) > 5 else "")
            builder.notes.append(f"{len(failing):,} records fail their checksum and are bad images: at offset {shown}")

    def _label(self, numbers: tuple[float, ...], texts: tuple[bytes, ...], names: tuple[bytes, ...]) -> AnyLabel:
        """The label of a record: the numbers or texts of its label field, and the class name in another field."""
        if self.multi_label:
            named = [_text(name) for name in names]
            return number_set(numbers, named) if numbers else text_set([_text(text) for text in texts])
        refuse_names([] if numbers else [_text(text) for text in texts])
        if not numbers and len(texts) == 1:
            return text_label(_text(texts[0]))
        if self.fields.one_hot:
            number: float | None = one_hot_class(numbers) if len(numbers) == self.fields.one_hot else None
            if number is None:
                raise BadLabel(*not_one_hot(numbers, self.fields.one_hot))
        else:
            number = one_of(numbers, self.label_element)
        return number_label(number, (_text(names[0]) or None) if names else None)

    def counts_from_one(self, indexes: Sequence[Index]) -> bool:
        return any(FROM_SLIM in index.marks for index in indexes)

    def title(self, number: int, offset: int, mark: int, read: Callable[[int, int], bytes]) -> str:
        """With the file's name that a record has from TF-Slim. It may not be unique."""
        with contextlib.suppress(BadExample, BadImage, OSError, UnicodeDecodeError, IndexError):
            size = _length_of(read(offset, LENGTH.size), 0)
            if size is not None:
                features = features_of(read(offset + LENGTH.size, size), 0, size)
                if FILE_NAME in features:
                    return f" #{number}: {bytes_of(features[FILE_NAME])[0].decode()}"
        return super().title(number, offset, mark, read)

    def image(self, stored: bytes, mark: int) -> bytes | Pixels:
        size = _length_of(stored, 0)
        if size is None or LENGTH.size + size + CHECKSUM.size != len(stored):
            raise BadImage("its record has another length than when it was indexed")
        if not _checksum_fits(stored, LENGTH.size, size):
            raise BadImage("its record fails its checksum")
        fields = self.fields
        try:
            features = features_of(stored, LENGTH.size, LENGTH.size + size)
        except BadExample as error:
            raise BadImage(f"its record is not a tf.train.Example: {error}") from error
        if fields.image in features and fields.pixels is not None:
            return fields.pixels.read(features, fields.image)
        images = bytes_of(features[fields.image]) if fields.image in features else ()
        if len(images) != 1:
            raise BadImage(f"its record has {len(images)} images")
        return images[0]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadLabel("it is text that is not UTF-8") from error


def _record(window: Window, offset: int) -> tuple[int, int]:
    """(position of its data in the window's buffer, size of its data)."""
    place = window.at(offset, LENGTH.size, "a record's length")
    size = _length_of(window.buffer, place)
    if size is None:
        found = window.buffer[place : place + LENGTH.size].hex(" ")
        raise Damaged(offset, f"a record's length and its checksum should be here, but the bytes are {found}")
    if size > LARGEST_SAMPLE:
        raise Damaged(offset, f"a record of {size:,} bytes is not an image")
    place = window.at(offset, LENGTH.size + size + CHECKSUM.size, "a record")
    return place + LENGTH.size, size


def _length_of(data: bytes, place: int) -> int | None:
    """The length of a record, or None if its checksum is wrong."""
    length, checksum = LENGTH.unpack_from(data, place)
    return int(length) if masked(crc32c(memoryview(data)[place : place + 8])) == checksum else None


def _checksum_fits(data: bytes, place: int, size: int) -> bool:
    """Whether the checksum that follows the data is right."""
    (stored,) = CHECKSUM.unpack_from(data, place + size)
    return masked(crc32c(memoryview(data)[place : place + size])) == int(stored)


def masked(crc: int) -> int:
    """TFRecord rotates checksums and adds a constant: checksums of data that contains checksums are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
