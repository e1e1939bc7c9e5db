"""Files of other people's formats, written here from their specifications: nothing of the readers is used."""

import io
import struct
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open_request import OpenRequest
from tests.data.samples import image_bytes

MAGIC = struct.pack("<I", 0xCED7230A)
Sample = tuple[bytes, int]  # an image and its label


def wanted(*, classes: list[str] | None = None, **settings: Any) -> OpenRequest:
    """What an opener is asked for under these settings of `data`."""
    return OpenRequest(DataConfig.model_validate(settings), None, None, classes)


def pictures(count: int, classes: int = 3, form: str = "JPEG") -> list[Sample]:
    """Small pictures that differ, class by class."""
    made = []
    for i in range(count):
        pixels = (
            np.random.default_rng(i).integers(0, 256, (3, 4, 3), dtype=np.uint8).repeat(6, axis=0).repeat(6, axis=1)
        )
        made.append((image_bytes(pixels, form), i * classes // count))
    return made


def rec_record(data: bytes) -> bytes:
    """RecordIO: cut at each magic number at a multiple of 4, which is left out."""
    cells = [data[i : i + 4] for i in range(0, len(data), 4)]
    parts, begin = [], 0
    for place, cell in enumerate(cells):
        if cell == MAGIC:
            parts.append(data[4 * begin : 4 * place])
            begin = place + 1
    parts.append(data[4 * begin :])
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    framed = (
        MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4)
        for kind, part in zip(kinds, parts, strict=True)
    )
    return b"".join(framed)


def rec_image(image: bytes, label: float | Sequence[float], identity: int = 0) -> bytes:
    """MXNet's header (flag, label, id, id2) and an image, as one record."""
    if isinstance(label, (int, float)):
        return rec_record(struct.pack("<IfQQ", 0, label, identity, 0) + image)
    labels = struct.pack(f"<{len(label)}f", *label)
    return rec_record(struct.pack("<IfQQ", len(label), 0.0, identity, 0) + labels + image)


def write_rec(path: Path, samples: Iterable[Sample]) -> Path:
    path.write_bytes(b"".join(rec_image(image, label, i) for i, (image, label) in enumerate(samples)))
    return path


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


def masked(crc: int) -> bytes:
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tf_record(data: bytes, crc: Callable[[bytes], int] = crc32c) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(crc(length)) + data + masked(crc(data))


Values = bytes | Sequence[int] | Sequence[float] | Sequence[bytes]


def example(features: dict[str, Values], *, packed: bool = True) -> bytes:
    """A tf.train.Example: bytes, integers or floats by name."""
    entries = b"".join(
        field(1, field(1, name.encode()) + field(2, _feature(v, packed))) for name, v in features.items()
    )
    return field(1, entries)


def _feature(values: Values, packed: bool) -> bytes:
    if isinstance(values, bytes):
        values = [values]
    if all(isinstance(value, bytes) for value in values):
        return field(1, b"".join(field(1, bytes(value)) for value in values))  # type: ignore[arg-type]
    if all(isinstance(value, int) for value in values):
        encoded = [varint(int(value) % 2**64) for value in values]
        return field(3, field(1, b"".join(encoded)) if packed else b"".join(varint(1 << 3 | 0) + e for e in encoded))
    floats = [struct.pack("<f", value) for value in values]
    return field(2, field(1, b"".join(floats)) if packed else b"".join(varint(1 << 3 | 5) + f for f in floats))


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def write_tfrecord(path: Path, samples: Iterable[Sample], image: str = "image", label: str = "label") -> Path:
    path.write_bytes(b"".join(tf_record(example({label: [number], image: data})) for data, number in samples))
    return path


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes]], *, form: int = tarfile.GNU_FORMAT, mode: str = "w"
) -> Path:
    with tarfile.open(path, mode, format=form) as tar:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_wds(path: Path, samples: Iterable[Sample], mode: str = "w") -> Path:
    members = ((name, data) for i, sample in enumerate(samples) for name, data in wds_members(f"{i:06d}", *sample))
    return write_tar(path, members, mode=mode)


def wds_members(key: str, image: bytes, label: int | str) -> list[tuple[str, bytes]]:
    return [(f"{key}.jpg", image), (f"{key}.cls", str(label).encode())]
