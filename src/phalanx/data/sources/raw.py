"""Decoded images of any size in memory-mapped files: reading is only cropping and resizing.

A file is the pixels of all images one after another (height, width, channels; uint8), then an index with an `ENTRY`
for each, then a `TRAILER`. Everything is little-endian. `phalanx data pack --format raw` writes them.

In version 2 images may have several labels: a bit for each class follows the index, whole bytes for each image.
"""

import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from phalanx.data.base import Framing, Pixels, Read
from phalanx.data.decode.resize import resize_all
from phalanx.data.order import Indices
from phalanx.data.sources.encoded import batch_parts
from phalanx.data.sources.labelled import Labelled, Labels, Part
from phalanx.data.sources.manifest import Manifest, load_manifest, packed
from phalanx.data.sources.window import Damaged
from phalanx.errors import UserError

MAGIC = b"PHALANX\0"
VERSION = 1
SEVERAL = 2  # the version of files whose images may have several labels
ENTRY = np.dtype([("offset", "<u8"), ("height", "<u4"), ("width", "<u4"), ("label", "<u4"), ("crc", "<u4")])
TRAILER = struct.Struct("<8sIIQQI")  # magic, version, channels, number of images, where the index begins, its CRC-32

Entries = npt.NDArray[np.void]


class RawFile(NamedTuple):
    """A file of decoded images: its memory-mapped bytes, and the index of its images."""

    path: Path
    bytes: Pixels
    entries: Entries
    channels: int
    bits: Pixels | None = None  # (n, bytes): a bit for each class, where images may have several labels

    def pixels(self, number: int) -> Pixels:
        """An image, without a copy."""
        offset, height, width = (int(self.entries[number][name]) for name in ("offset", "height", "width"))
        return self.bytes[offset : offset + height * width * self.channels].reshape(height, width, self.channels)


def trailer(entries: Entries, channels: int, index_offset: int, bits: bytes = b"") -> bytes:
    """The end of a file, which describes and checks the index, and the bits of several labels after it."""
    version, crc = SEVERAL if bits else VERSION, zlib.crc32(entries.tobytes() + bits)
    return TRAILER.pack(MAGIC, version, channels, len(entries), index_offset, crc)


def open_raw_file(path: Path) -> RawFile:
    """Map a file into memory. Every number in it is checked before it is used."""
    data: Pixels = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    end = len(data) - TRAILER.size
    if end < 0:
        raise Damaged(0, f"it has {len(data)} bytes, fewer than its trailer")
    magic, version, channels, count, index_offset, crc = TRAILER.unpack(data[end:].tobytes())
    if magic != MAGIC:
        raise Damaged(end, "its trailer is missing: the file was cut off, or has another format")
    if version not in (VERSION, SEVERAL):
        raise Damaged(end, f"it is of version {version}; this Phalanx reads {VERSION} and {SEVERAL}")
    length = count * ENTRY.itemsize
    more = end - index_offset - length  # bytes of several labels
    if more < 0 or (more % count if version == SEVERAL and count else more):
        raise Damaged(end, f"an index of {count:,} images at {index_offset:,} does not end here")
    index = data[index_offset:end].tobytes()
    if zlib.crc32(index) != crc:
        raise Damaged(index_offset, "its index has changed since it was written")
    entries = np.frombuffer(index[:length], dtype=ENTRY)
    bits = np.frombuffer(index[length:], dtype=np.uint8).reshape(count, -1) if version == SEVERAL and count else None
    # As float64: products cannot overflow, and are exact up to the size of any file.
    lengths = entries["height"].astype(np.float64) * entries["width"] * channels
    outside = np.flatnonzero((entries["offset"] + lengths > index_offset) | (lengths == 0))
    if len(outside):
        raise Damaged(index_offset, f"image {outside[0]} of its index is outside of the file")
    return RawFile(path, data, entries, channels, bits)


@dataclass(kw_only=True)
class RawSource(Labelled):
    """A Source of decoded images in files. Sample i is image numbers[i] of the split."""

    files: list[RawFile]
    starts: Indices  # the number of each file's first image
    numbers: Indices
    sizes: npt.NDArray[np.int64]  # (n, 2): height and width
    pool: Executor | None

    def name(self, index: int) -> str:
        file, _ = self._place(index)
        return f"{file.path} #{self.numbers[index]}"

    def pixels(self, index: int) -> Pixels:
        file, number = self._place(index)
        return file.pixels(number)

    def stored(self, index: int) -> bytes:
        return self.pixels(index).tobytes()

    def damage(self, index: int) -> str:
        """The error in a sample's bytes by its checksum, or empty. `read` does not check it, to save time."""
        file, number = self._place(index)
        if zlib.crc32(file.pixels(number).data) == int(file.entries[number]["crc"]):
            return ""
        return f"its bytes, from {int(file.entries[number]['offset']):,} on, have changed since they were written"

    def subset(self, chosen: Indices) -> "RawSource":
        return replace(
            self,
            description=self.describe_part(chosen),
            labels=self.labels[chosen],
            numbers=self.numbers[chosen],
            sizes=self.sizes[chosen],
        )

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        """Crop samples. Files were checked when they were opened, so `replace_bad` has no effect."""
        views = framing.views(indices, self.sizes[indices], epoch)
        out = np.empty((len(indices), framing.size, framing.size, self.channels), dtype=np.uint8)

        def frame(part: slice) -> None:
            images = [self.pixels(index) for index in indices[part].tolist()]
            resize_all(images, views[part], framing.size, framing.interpolation, framing.pad_mode, out[part])

        parts = batch_parts(len(indices), self.pool)
        list(self.pool.map(frame, parts) if self.pool else map(frame, parts))
        return Read(out, self.labels[indices], indices)

    def _place(self, index: int) -> tuple[RawFile, int]:
        number = int(self.numbers[index])
        at = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.files[at], number - int(self.starts[at])


def is_raw(path: Path) -> bool:
    """Whether a folder was packed as raw. Opening it checks that it is complete."""
    manifest = load_manifest(path)
    return manifest is not None and manifest.options.form == "raw"


def open_raw(path: Path, *, channels: int | None, pool: Executor | None) -> RawSource:
    """The training images of a folder that was packed as raw, or its only ones."""
    manifest = _manifest(path)
    return _opened(path, manifest, next(iter(manifest.splits)), channels, pool)


def open_raw_val(path: Path, *, channels: int | None, pool: Executor | None) -> RawSource | None:
    """Its validation images, if it has both splits."""
    manifest = _manifest(path)
    return _opened(path, manifest, "val", channels, pool) if len(manifest.splits) == 2 else None


def _manifest(path: Path) -> Manifest:
    manifest = packed(path)
    if manifest is None or manifest.options.form != "raw":
        raise UserError(
            f"{path} holds no raw data",
            why="it is not a folder that `phalanx data pack --format raw` made",
            remedy="give such a folder, or leave `raw:` out",
        )
    return manifest


def _opened(path: Path, manifest: Manifest, part: Part, channels: int | None, pool: Executor | None) -> RawSource:
    if channels not in (None, manifest.channels):
        raise UserError(
            f"{path} cannot be read with {channels} channel(s)",
            why=f"its images were decoded with {manifest.channels}",
            remedy=f"leave data.channels out, or pack the data again with data.channels={channels}",
        )
    files = [_checked(path / shard.files[0].name, manifest) for shard in manifest.splits[part]]
    labels = _label_sets(files, manifest) if manifest.multi_label else _joined(file.entries["label"] for file in files)
    heights, widths = (_joined(file.entries[side] for file in files) for side in ("height", "width"))
    counts = [len(file.entries) for file in files]
    return RawSource(
        description=f"raw pixels in {path}, {len(labels):,} images in {len(manifest.classes):,} classes",
        classes=manifest.classes,
        labels=labels,
        channels=manifest.channels,
        image_size=manifest.image_size,
        mean=tuple(manifest.mean),
        std=tuple(manifest.std),
        files=files,
        starts=np.cumsum([0, *counts[:-1]], dtype=np.int64),
        numbers=np.arange(len(labels), dtype=np.int64),
        sizes=np.stack([heights, widths], axis=1),
        pool=pool,
    )


def _checked(path: Path, manifest: Manifest) -> RawFile:
    """Open a shard, and check that it belongs to this dataset."""
    try:
        file = open_raw_file(path)
        start = len(file.bytes) - TRAILER.size
        if file.channels != manifest.channels:
            raise Damaged(start, f"its images have {file.channels} channels, those of its dataset {manifest.channels}")
        if len(file.entries) and int(file.entries["label"].max()) >= len(manifest.classes):
            largest = file.entries["label"].max()
            raise Damaged(start, f"it has the label {largest}, and there are {len(manifest.classes)} classes")
        if len(file.entries) and manifest.multi_label != (file.bits is not None):
            raise Damaged(start, "its images do not have several labels as its dataset does, or the other way round")
        if file.bits is not None and file.bits.shape[1] != _label_bytes(manifest):
            raise Damaged(start, f"it has {file.bits.shape[1]} bytes of labels for {len(manifest.classes)} classes")
    except Damaged as damage:
        raise UserError(
            f"{path} is damaged at offset {damage.offset:,}",
            why=damage.why,
            remedy=f"remove this file and run `{manifest.command}` again: only what is missing is packed",
        ) from damage
    return file


def _label_bytes(manifest: Manifest) -> int:
    return -(-len(manifest.classes) // 8)


def _label_sets(files: Iterable[RawFile], manifest: Manifest) -> Labels:
    nothing = np.empty((0, _label_bytes(manifest)), dtype=np.uint8)
    rows = np.concatenate([nothing, *(file.bits for file in files if file.bits is not None)])
    return np.unpackbits(rows, axis=1, count=len(manifest.classes)).astype(np.int64)


def _joined(columns: Iterable[npt.NDArray[np.uint32]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)
