"""MNIST and its relatives (Fashion-MNIST, KMNIST, EMNIST, QMNIST) in their idx form, plain or gzipped."""

import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, Part, without_zero
from phalanx.errors import UserError

# train-images-idx3-ubyte, emnist-letters-test-labels-idx1-ubyte.gz, t10k-images.idx3-ubyte, qmnist-test-labels-idx2-int
NAME = re.compile(r"(?P<stem>.+?)[-_.](?P<what>image|label)s?[-_.]idx\d?(-?(ubyte|int))?(\.gz)?", re.IGNORECASE)
SPLIT = re.compile(
    r"(?P<prefix>.*?)[-_.]?(?P<split>train|training|t10k|test|testing|val|valid|validation)", re.IGNORECASE
)
TRAIN = ("train", "training")
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4"}
UNSIGNED_BYTE = 0x08
_LONGEST_HEADER = 20  # bytes: of four dimensions
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Files:
    """The files of a dataset in a folder; `prefix` is what the names of several datasets there begin with."""

    folder: Path
    prefix: str
    files: dict[tuple[Part, str], Path]  # by part and content: image or label

    def file(self, part: Part, what: str) -> Path:
        found = self.files.get((part, what))
        if found is not None:
            return found
        name = f"{self.prefix}{'train' if part == 'train' else 't10k'}-{what}s-idx{3 if what == 'image' else 1}-ubyte"
        there = ", ".join(sorted(path.name for path in self.files.values()))
        raise UserError(
            f"{self.folder} is missing {name} (or {name}.gz)",
            why=f"idx data is files of images and of labels, of training and of test (t10k); there are {there}",
            remedy="copy or download it again"
            + (", or name other validation data with data.val" if part == "val" else ""),
        )


def find_idx(path: Path) -> Path | None:
    """The folder with the files: the path itself, or `raw` inside it, where torchvision puts them; or a file of one."""
    if path.is_file():
        return path if NAME.fullmatch(path.name) else None
    return next((folder for folder in (path, path / "raw", path / "gzip") if any(_datasets(folder))), None)


def open_idx(path: Path, part: Part, *, channels: int | None) -> ArraySource:
    """The training images of idx files, or the test images (t10k) as validation."""
    found = _chosen(find_idx(path) or path)
    images_file, labels_file = (found.file(part, what) for what in ("image", "label"))
    images, labels = _images(images_file), _labels(labels_file)
    if len(images) != len(labels):
        raise UserError(
            f"{images_file.name} and {labels_file.name} in {found.folder} do not belong together",
            why=f"there are {len(images):,} images and {len(labels):,} labels",
            remedy="copy or download both files again",
        )
    every = np.concatenate([_labels(file) for (_, what), file in found.files.items() if what == "label"])
    source = array_source(
        f"{path.resolve().name} {part}",
        f"idx files {found.prefix}* in {found.folder}" if found.prefix else f"idx files in {found.folder}",
        images,
        labels,
        _class_names(found, int(every.max()) + 1),
        image_size=max(images.shape[1:3]),
        channels=channels,
    )
    source.notes = without_zero(every)
    return source


def _chosen(path: Path) -> Files:
    """The dataset of a file, or the only one in a folder."""
    folder = path.parent if path.is_file() else path
    datasets = list(_datasets(folder))
    if path.is_file():
        datasets = [each for each in datasets if path in each.files.values()]
    if not datasets:
        raise UserError(
            f"{path} holds no idx files",
            why="names such as train-images-idx3-ubyte and train-labels-idx1-ubyte are expected",
            remedy="check the path",
        )
    if len(datasets) > 1:
        prefixes = ", ".join(each.prefix or "(none)" for each in datasets)
        raise UserError(
            f"{path} holds more than one dataset",
            why=f"the names of its files begin with {prefixes}",
            remedy=f"name a file of one of them: {next(iter(datasets[0].files.values()))}",
        )
    return datasets[0]


def _datasets(folder: Path) -> Iterator[Files]:
    """The datasets in a folder, by what their file names begin with. A file may be in a folder of its own name."""
    found: dict[str, dict[tuple[Part, str], Path]] = {}
    for entry in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else ():
        match = NAME.fullmatch(entry.name)
        file = entry / entry.name if entry.is_dir() else entry
        if match is None or not file.is_file():
            continue
        split = SPLIT.fullmatch(match["stem"])
        prefix = match["stem"] if split is None else split["prefix"]
        part: Part = "train" if split is None or split["split"].lower() in TRAIN else "val"
        # In reverse order: of a file and its gzipped copy, the plain one counts.
        found.setdefault(prefix and f"{prefix}-", {})[part, match["what"].lower()] = file
    for prefix, files in sorted(found.items()):
        yield Files(folder, prefix, files)


def _class_names(found: Files, num_classes: int) -> list[str]:
    """The characters in EMNIST's mapping of labels to character codes; numbers without such a file."""
    numbers = [str(number) for number in range(num_classes)]
    file = found.folder / f"{found.prefix}mapping.txt"
    try:
        rows = [line.split() for line in file.read_text(encoding="ascii").splitlines() if line.strip()]
        named = {int(label): chr(int(code)) for label, code, *_ in rows}
    except (OSError, ValueError):
        return numbers
    names = [named.get(number, digit) for number, digit in enumerate(numbers)]
    return names if len(set(names)) == len(names) else numbers


def _images(file: Path) -> npt.NDArray[np.uint8]:
    """Images (n, height, width, channels): grey ones have three dimensions in the file, colour four."""
    stored = _read(file, (UNSIGNED_BYTE,), (3, 4), "00 00 08 03 (idx, 3-d, bytes)")
    if stored.ndim == 4 and stored.shape[3] not in (1, 3):
        raise _damaged(file, f"its images have {stored.shape[3]} channels, and 1 or 3 are expected")
    return stored if stored.ndim == 4 else stored[..., None]


def _labels(file: Path) -> Labels:
    """Labels, of any type of integers. Of several numbers for an image, as in QMNIST, the first is the class."""
    stored = _read(file, tuple(TYPES), (1, 2), "00 00 08 01 (idx, 1-d, bytes)")
    labels: Labels = (stored if stored.ndim == 1 else stored[:, 0]).astype(np.int64)
    if int(labels.min()) < 0:
        raise _damaged(file, f"it has the label {labels.min()}, and labels count from 0")
    return labels


def _read(file: Path, types: tuple[int, ...], num_dims: tuple[int, ...], expected: str) -> npt.NDArray[Any]:
    """The array in an idx file: two zero bytes, its type, its number of dimensions, their lengths, its values."""
    data = file.read_bytes()
    if data.startswith(GZIP_MAGIC):  # by content: some tools decompress and keep the name .gz
        data = _unpacked(file, data)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in types or data[3] not in num_dims:
        raise _damaged(file, f"it starts with {data[:4].hex(' ') or 'nothing'} instead of {expected}")
    dtype, dims = np.dtype(TYPES[data[2]]), data[3]
    start = 4 + 4 * dims
    if len(data) < start:
        raise _damaged(file, f"it ends inside its header, after {len(data)} bytes")
    shape = [int(length) for length in np.frombuffer(data, dtype=">u4", count=dims, offset=4)]
    if len(data) - start != math.prod(shape) * dtype.itemsize or not math.prod(shape):
        dims_text = "×".join(str(length) for length in shape)
        raise _damaged(file, f"its header announces {dims_text} values and {len(data) - start:,} bytes follow")
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)


def _unpacked(file: Path, data: bytes) -> bytes:
    """The content of a gzipped file: never more than its header announces, and one byte. A bomb stops there."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            start = packed.read(_LONGEST_HEADER)
            dims = min(start[3], 4) if len(start) > 3 else 0
            shape = [int(length) for length in np.frombuffer(start[: 4 + 4 * dims], ">u4", offset=4)] if dims else []
            return start + packed.read(max(0, 4 * math.prod(shape) + 1))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _damaged(file, f"it does not unpack: {error}") from error


def _damaged(file: Path, why: str) -> UserError:
    return UserError(f"{file} is not a complete idx file", why=why, remedy="copy or download the file again")
