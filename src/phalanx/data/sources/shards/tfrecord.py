"""TFRecord: records with checksums, each a tf.train.Example with an image and its label.

A record is its length (8 bytes), the checksum of the length, the data, and the checksum of the data. Lengths are
checked before they are used; data when the index is made and at each read.
"""

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.classes import BadLabel, number_label, one_of, refuse_names, text_label
from phalanx.data.sources.shards.index import LARGEST_SAMPLE, AnyLabel, Index, IndexBuilder
from phalanx.data.sources.shards.indexing import Reader
from phalanx.data.sources.shards.label_sets import number_set, text_set
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards
from phalanx.data.sources.shards.tf_example import BadExample, Feature, bytes_of, features_of, kind_of, numbers_of
from phalanx.data.sources.shards.unpack import readable_shards
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
SLIM_LABEL = "image/class/label"
IMAGE_FIELDS = ("image/encoded", "image")  # of TF-Slim; of TFDS and TFX
LABEL_FIELDS = (SLIM_LABEL, "label")
NAME_FIELDS = ("image/class/synset", "image/class/text")  # TF-Slim's names of a label
FROM_SLIM = 1  # the mark of samples whose labels may be counted from 1


def open_tfrecord(paths: list[Path], request: OpenRequest) -> ShardSource:
    """One dataset from TFRecord files."""
    config = request.config
    reader = ExampleReader(config.image_field, config.label_field, config.label_element, config.multi_label)
    given = listed_classes(paths[0].parent, request.config.label_field or "label")
    return open_shards(describe("TFRecord", paths), readable_shards(paths), reader, request, given=given)


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
class Fields:
    """The names of the features to read."""

    image: str
    label: str
    class_name: str | None


@dataclass(frozen=True)
class ExampleReader(Reader):
    """Examples in TFRecord files. Without settings, fields are found by their usual names."""

    image_field: str | None
    label_field: str | None
    label_element: int | None
    multi_label: bool = False

    @property
    def fingerprint(self) -> str:
        labels = "multi_label" if self.multi_label else f"label_element={self.label_element}"
        return f"tfrecord image={self.image_field!r} label={self.label_field!r} {labels}"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        offset, fields, label = 0, None, None
        without_image, failing = 0, []
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
                    fields = fields or self._fields(window, start, features)
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
            if label is not None and fields is not None:
                builder.add(start, offset - start, label, FROM_SLIM if fields.label == SLIM_LABEL else 0)
        if without_image:
            builder.notes.append(f"{without_image:,} records without an image are left out")
        if failing:
            shown = ", ".join(f"{start:,}" for start in failing[:5]) + (" …" if len(failing) > 5 else "")
            builder.notes.append(f"{len(failing):,} records fail their checksum and are bad images: at offset {shown}")

    def _fields(self, window: Window, offset: int, features: Mapping[str, Feature]) -> Fields:
        """Which features hold the image and the label: from the settings, or by their usual names."""
        found = []
        for what, chosen, usual in (
            ("image", self.image_field, IMAGE_FIELDS),
            ("label", self.label_field, LABEL_FIELDS),
        ):
            names = usual if chosen is None else (chosen,)
            name = next((name for name in names if name in features), None)
            if name is None:
                there = ", ".join(f"{key[:60]!r} ({kind_of(value)})" for key, value in sorted(features.items()))
                raise UserError(
                    f"the record at offset {offset:,} of {window.path} has no {what} under {' or '.join(names)}",
                    why=f"its fields are {there[:600] or 'none'}",
                    remedy=f"name the field with data.{what}_field",
                )
            found.append(name)
        image, label = found
        kind = kind_of(features[image])
        if kind != "bytes":
            raise UserError(
                f"the field {image!r} of the record at offset {offset:,} of {window.path} holds no image",
                why=f"it lists {kind}, and a compressed image is bytes",
                remedy="name another field with data.image_field, or encode the images as JPEG or PNG",
            )
        named = [name for name in NAME_FIELDS if name in features and any(bytes_of(features[name]))]
        return Fields(image, label, named[0] if named and label == SLIM_LABEL else None)

    def _label(self, numbers: tuple[float, ...], texts: tuple[bytes, ...], names: tuple[bytes, ...]) -> AnyLabel:
        """The label of a record: the numbers or texts of its label field, and the class name in another field."""
        if self.multi_label:
            named = [_text(name) for name in names]
            return number_set(numbers, named) if numbers else text_set([_text(text) for text in texts])
        refuse_names([] if numbers else [_text(text) for text in texts])
        if not numbers and len(texts) == 1:
            return text_label(_text(texts[0]))
        return number_label(one_of(numbers, self.label_element), (_text(names[0]) or None) if names else None)

    def counts_from_one(self, indexes: Sequence[Index]) -> bool:
        return any(FROM_SLIM in index.marks for index in indexes)

    def image(self, stored: bytes, mark: int) -> bytes:
        size = _length_of(stored, 0)
        if size is None or LENGTH.size + size + CHECKSUM.size != len(stored):
            raise BadImage("its record has another length than when it was indexed")
        if not _checksum_fits(stored, LENGTH.size, size):
            raise BadImage("its record fails its checksum")
        try:
            names = IMAGE_FIELDS if self.image_field is None else (self.image_field,)
            features = features_of(stored, LENGTH.size, LENGTH.size + size)
            images = next((bytes_of(features[name]) for name in names if name in features), ())
        except BadExample as error:
            raise BadImage(f"its record is not a tf.train.Example: {error}") from error
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
    return int(length) if _masked(crc32c(memoryview(data)[place : place + 8])) == checksum else None


def _checksum_fits(data: bytes, place: int, size: int) -> bool:
    """Whether the checksum that follows the data is right."""
    (stored,) = CHECKSUM.unpack_from(data, place + size)
    return _masked(crc32c(memoryview(data)[place : place + size])) == int(stored)


def _masked(crc: int) -> int:
    """TFRecord rotates checksums and adds a constant: checksums of data that contains checksums are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
