"""MNIST and Fashion-MNIST in their idx form, plain or gzipped."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, Part
from phalanx.errors import UserError

PREFIXES: dict[Part, str] = {"train": "train", "val": "t10k"}
CONTENTS = (("images", 3), ("labels", 1))  # what a file holds, and in how many dimensions
UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"


def find_idx(path: Path) -> Path | None:
    """The folder with the files: the path itself, or `raw` inside it, where torchvision puts them."""
    for folder in (path, path / "raw"):
        if any(_find_file(folder, prefix, what, dims) for prefix in PREFIXES.values() for what, dims in CONTENTS):
            return folder
    return None


def open_idx(path: Path, part: Part, *, channels: int | None) -> ArraySource:
    """The training images of an idx folder, or its 10,000 test images (t10k) as validation."""
    folder = find_idx(path) or path
    images_file, labels_file = (_file(folder, PREFIXES[part], what, dims) for what, dims in CONTENTS)
    images: Pixels = _read(images_file, 3)[..., None]
    labels: Labels = _read(labels_file, 1).astype(np.int64)
    if len(images) != len(labels):
        raise UserError(
            f"{images_file.name} and {labels_file.name} in {folder} do not belong together",
            why=f"there are {len(images):,} images and {len(labels):,} labels",
            remedy="copy or download both files again",
        )
    return array_source(
        f"{path.resolve().name} {part}",
        f"idx files in {folder}",
        images,
        labels,
        [str(number) for number in range(_num_classes(folder, labels))],
        image_size=max(images.shape[1:3]),
        channels=channels,
    )


def _num_classes(folder: Path, labels: Labels) -> int:
    """One more than the largest label. idx files hold no names, so the training labels decide for both parts."""
    train = _find_file(folder, PREFIXES["train"], "labels", 1)
    largest = int(_read(train, 1).max()) if train else 0
    return max(largest, int(labels.max())) + 1


def _names(prefix: str, what: str, dims: int) -> list[str]:
    """The published name, and the one that some unpackers write."""
    return [f"{prefix}-{what}{joint}idx{dims}-ubyte{end}" for joint in "-." for end in ("", ".gz")]


def _find_file(folder: Path, prefix: str, what: str, dims: int) -> Path | None:
    return next((folder / name for name in _names(prefix, what, dims) if (folder / name).is_file()), None)


def _file(folder: Path, prefix: str, what: str, dims: int) -> Path:
    file = _find_file(folder, prefix, what, dims)
    if file is None:
        name = _names(prefix, what, dims)[0]
        raise UserError(
            f"{folder} is missing {name} (or {name}.gz)",
            why="idx data is four files: train-images, train-labels, t10k-images and t10k-labels",
            remedy="copy or download it again"
            + (", or name other validation data with data.val" if prefix == PREFIXES["val"] else ""),
        )
    return file


def _read(file: Path, dims: int) -> Pixels:
    """The array in an idx file: two zero bytes, its type, its number of dimensions, their lengths, its values."""
    data = file.read_bytes()
    if data.startswith(GZIP_MAGIC):  # by content: some tools decompress and keep the name .gz
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(file, f"it does not unpack: {error}") from error
    if data[:4] != bytes([0, 0, UNSIGNED_BYTE, dims]):
        raise _damaged(
            file,
            f"it starts with {data[:4].hex(' ') or 'nothing'} instead of 00 00 08 {dims:02x} (idx, {dims}-d, bytes)",
        )
    start = 4 + 4 * dims
    if len(data) < start:
        raise _damaged(file, f"it ends inside its header, after {len(data)} bytes")
    shape = [int(length) for length in np.frombuffer(data, dtype=">u4", count=dims, offset=4)]
    if len(data) - start != math.prod(shape) or not math.prod(shape):
        dims_text = "×".join(str(length) for length in shape)
        raise _damaged(file, f"its header announces {dims_text} bytes and {len(data) - start:,} follow")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _damaged(file: Path, why: str) -> UserError:
    return UserError(f"{file} is not a complete idx file", why=why, remedy="copy or download the file again")
