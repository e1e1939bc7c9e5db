"""SVHN's cropped digits: train_32x32.mat and test_32x32.mat of MATLAB, in which the digit 0 has the label 10."""

from pathlib import Path
from typing import Any

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, Part
from phalanx.errors import UserError

FILES: dict[Part, str] = {"train": "train_32x32.mat", "val": "test_32x32.mat"}
EXTRA = "extra_32x32.mat"


def is_svhn(path: Path) -> bool:
    return any((path / name).is_file() for name in FILES.values())


def open_svhn(path: Path, part: Part, *, channels: int | None) -> ArraySource:
    """The 73,257 training images, or the 26,032 test images as validation."""
    file = path / FILES[part]
    if not file.is_file():
        raise UserError(
            f"{path} is missing {file.name}",
            why=f"SVHN is {FILES['train']} and {FILES['val']}",
            remedy="download it" + (", or name other validation data with data.val" if part == "val" else ""),
        )
    content = _read(file)
    stored: Any = content.get("X")
    labels: Any = content.get("y")
    if not _fit(stored, labels):
        found = ", ".join(f"{name} {np.shape(value)}" for name, value in content.items() if not name.startswith("__"))
        raise UserError(
            f"{file} does not hold SVHN's cropped digits",
            why=f"X of (32, 32, 3, number) bytes and y of as many labels from 1 to 10 are expected; there are {found}",
            remedy="download the file again (Format 2: cropped digits)",
        )
    images: Pixels = np.ascontiguousarray(stored.transpose(3, 0, 1, 2))
    numbers: Labels = labels.reshape(-1).astype(np.int64) % 10
    source = array_source(
        f"svhn {part}",
        "SVHN",
        images,
        numbers,
        [str(digit) for digit in range(10)],
        image_size=32,
        channels=channels,
    )
    if part == "train" and (path / EXTRA).is_file():
        source.notes = (f"{path / EXTRA} is left out",)
    return source


def _fit(stored: Any, labels: Any) -> bool:
    arrays = isinstance(stored, np.ndarray) and isinstance(labels, np.ndarray)
    if not arrays or stored.ndim != 4 or stored.shape[2] != 3 or stored.dtype != np.uint8:
        return False
    return bool(labels.size == stored.shape[3] and labels.size and labels.min() >= 0 and labels.max() <= 10)


def _read(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat  # takes a while to import

    try:
        found: dict[str, Any] = loadmat(file)
    except Exception as error:  # damaged files raise all kinds
        raise UserError(
            f"{file} cannot be read as a MATLAB file",
            why=str(error)[:200] or type(error).__name__,
            remedy="download the file again",
        ) from error
    return found
