"""STL-10 in its binary form: pixels channel by channel and column by column; labels, from 1, in files of their own."""

from pathlib import Path

import numpy as np

from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, Part
from phalanx.errors import UserError

SIDE = 96
PIXEL_BYTES = 3 * SIDE * SIDE
FOLDER = "stl10_binary"  # what the published archive unpacks to
NAMES: dict[Part, str] = {"train": "train", "val": "test"}
CLASSES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


def find_stl10(path: Path) -> Path | None:
    """The folder with the files: the path itself, or the published archive's folder in it."""
    return next((folder for folder in (path, path / FOLDER) if (folder / "train_X.bin").is_file()), None)


def open_stl10(path: Path, part: Part, *, channels: int | None) -> ArraySource:
    """The 5,000 labelled training images, or the 8,000 test images as validation."""
    folder = find_stl10(path) or path
    images_file, labels_file = (folder / f"{NAMES[part]}_{what}.bin" for what in "Xy")
    for file in (images_file, labels_file):
        if not file.is_file():
            raise UserError(
                f"{folder} is missing {file.name}",
                why="STL-10 is train_X.bin, train_y.bin, test_X.bin and test_y.bin",
                remedy="unpack stl10_binary.tar.gz again"
                + (", or name other validation data with data.val" if part == "val" else ""),
            )
    labels: Labels = np.fromfile(labels_file, dtype=np.uint8).astype(np.int64)
    if images_file.stat().st_size != len(labels) * PIXEL_BYTES or not len(labels):
        raise UserError(
            f"{images_file} is damaged, or does not belong to {labels_file.name}",
            why=f"it has {images_file.stat().st_size:,} bytes; an image of 96×96×3 has {PIXEL_BYTES:,}, and there are "
            f"{len(labels):,} labels",
            remedy="unpack stl10_binary.tar.gz again",
        )
    if labels.min() < 1 or labels.max() > len(CLASSES):
        raise UserError(
            f"{labels_file} has labels from {labels.min()} to {labels.max()}",
            why="those of STL-10 are 1 to 10",
            remedy="unpack stl10_binary.tar.gz again",
        )
    stored = np.fromfile(images_file, dtype=np.uint8).reshape(-1, 3, SIDE, SIDE)
    source = array_source(
        f"stl-10 {part}",
        "STL-10 binary",
        np.ascontiguousarray(stored.transpose(0, 3, 2, 1)),
        labels - 1,
        _class_names(folder),
        image_size=SIDE,
        channels=channels,
    )
    if part == "train" and (folder / "unlabeled_X.bin").is_file():
        source.notes = (f"{folder / 'unlabeled_X.bin'} has no labels and is left out",)
    return source


def _class_names(folder: Path) -> list[str]:
    """The names from the dataset's own file, or the published ones."""
    file = folder / "class_names.txt"
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    names = [line.strip() for line in lines if line.strip()]
    return names if len(names) == len(CLASSES) else CLASSES
