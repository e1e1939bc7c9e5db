"""TFRecord as TF-Slim writes it: tf.train.Examples with an image, its label, size and name, and their checksums.

Examples are encoded here: protobuf does not promise the same bytes from one version to the next.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from crc32c import crc32c
from PIL import Image

from phalanx.data.decode.images import broken_means_bad
from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.pack.endings import ending_of
from phalanx.data.sources.manifest import FileEntry
from phalanx.data.sources.shards.tfrecord import masked

ENDING = ".tfrecord"
LABELS = "labels.txt"  # of TF-Slim: without it, labels that are never 0 would count from 1
BYTES_LIST, INT64_LIST = 1, 3  # numbers of the fields of a Feature
IMAGE_FORMATS = {"jpg": "jpeg", "tif": "tiff"}  # others are called as their endings


@dataclass(frozen=True)
class TfImage:
    """A compressed image with its size, and the name of its file if it is known."""

    data: bytes
    height: int
    width: int
    name: str | None

    def __len__(self) -> int:
        return len(self.data)


def tf_image(data: bytes, name: str | None) -> TfImage:
    """Raises BadImage where the size cannot be read."""
    with broken_means_bad(), Image.open(BytesIO(data)) as image:
        return TfImage(data, image.height, image.width, name)


class TfRecordShard:
    """A TFRecord file being written."""

    def __init__(self, stem: Path, classes: list[str]) -> None:
        self._classes = classes
        self._file = ChecksummedFile(stem.with_name(stem.name + ENDING))

    @property
    def size(self) -> int:
        return self._file.sums.bytes

    def add(self, number: int, label: int, data: TfImage) -> None:
        ending = ending_of(data.data)
        example = encoded_example(
            {
                "image/class/label": label,
                "image/class/text": self._classes[label].encode(),
                "image/encoded": data.data,
                "image/filename": (data.name or f"{number:08d}.{ending}").encode(errors="replace"),
                "image/format": IMAGE_FORMATS.get(ending, ending).encode(),
                "image/height": data.height,
                "image/width": data.width,
            }
        )
        length = struct.pack("<Q", len(example))
        for piece in (length, _checksum(length), example, _checksum(example)):
            self._file.write(piece)

    def finish(self) -> list[FileEntry]:
        return [self._file.finish()]

    def abandon(self) -> None:
        self._file.abandon()


def labels_text(classes: list[str]) -> str:
    return "".join(f"{number}:{name}\n" for number, name in enumerate(classes))


def encoded_example(features: Mapping[str, bytes | int]) -> bytes:
    """A tf.train.Example: each feature is a list with one value. In the given order."""
    entries = (_field(1, _field(1, name.encode()) + _field(2, _feature(value))) for name, value in features.items())
    return _field(1, b"".join(entries))


def _feature(value: bytes | int) -> bytes:
    if isinstance(value, bytes):
        return _field(BYTES_LIST, _field(1, value))
    return _field(INT64_LIST, _field(1, _varint(value)))  # integers are packed: many would follow one another


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message: its number and kind, its length, its content."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of all but the last byte is set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(data)))
