"""CIFAR-10 and CIFAR-100 in their binary form: records of label byte(s) and 3,072 pixel bytes, channel by channel."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, Part
from phalanx.errors import UserError

SIDE = 32
PIXEL_BYTES = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Layout:
    """The files of one of the two datasets. A record starts with one byte per kind of label."""

    title: str
    folder: str  # what the published archive unpacks to
    files: dict[Part, list[str]]
    label_names: dict[str, str]  # kind of label → file with its class names; the order of the bytes
    num_classes: dict[str, int]
    archive: str

    @property
    def record_bytes(self) -> int:
        return len(self.label_names) + PIXEL_BYTES


CIFAR_10 = Layout(
    "cifar-10",
    "cifar-10-batches-bin",
    {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "val": ["test_batch.bin"]},
    {"fine": "batches.meta.txt"},
    {"fine": 10},
    "cifar-10-binary.tar.gz",
)
CIFAR_100 = Layout(
    "cifar-100",
    "cifar-100-binary",
    {"train": ["train.bin"], "val": ["test.bin"]},
    {"coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt"},
    {"coarse": 20, "fine": 100},
    "cifar-100-binary.tar.gz",
)


def find_cifar(path: Path) -> list[tuple[Path, Layout]]:
    """Folders with CIFAR files and their layouts: the path itself, or the published archives' folders in it."""
    return [
        (folder, layout)
        for layout in (CIFAR_10, CIFAR_100)
        for folder in (path, path / layout.folder)
        if any(_is_whole(folder / name, layout) for names in layout.files.values() for name in names)
    ]


def _is_whole(file: Path, layout: Layout) -> bool:
    """Whether a file holds whole records. Other datasets have a train.bin, too: at least one file has to."""
    return file.is_file() and file.stat().st_size > 0 and file.stat().st_size % layout.record_bytes == 0


def open_cifar(path: Path, part: Part, *, channels: int | None, kind: str = "fine") -> ArraySource:
    """The training or test images of a CIFAR folder. `kind` chooses among the labels of CIFAR-100."""
    folder, layout = _only_one(path)
    if kind not in layout.label_names:
        raise UserError(
            f"{folder} has no {kind} labels",
            why=f"it holds {layout.title}, whose records have one label",
            remedy="leave the kind of label out: cifar:PATH",
        )
    _refuse_missing(folder, layout, part)
    classes = _class_names(folder, layout, kind)
    parts = [_read_file(folder / name, layout, kind, len(classes)) for name in layout.files[part]]
    return array_source(
        f"{layout.title} {part}",
        f"{layout.title.upper()} binary",
        np.concatenate([images for images, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        classes,
        image_size=SIDE,
        channels=channels,
    )


def _only_one(path: Path) -> tuple[Path, Layout]:
    found = find_cifar(path)
    if len(found) > 1:
        raise UserError(
            f"{path} holds more than one dataset",
            why=f"there are {' and '.join(str(folder) for folder, _ in found)}",
            remedy=f"name one of them: data.source={found[0][0]}",
        )
    if not found:
        raise UserError(
            f"{path} holds no CIFAR data in binary form",
            why="neither data_batch_1.bin … test_batch.bin nor train.bin, test.bin is there"
            + (", only Python pickles, which can run code when they are read" if has_pickles(path) else ""),
            remedy=f'unpack {CIFAR_10.archive} or {CIFAR_100.archive} (the "binary version") there; files of the same '
            "layout under other names are bin:PATH",
        )
    return found[0]


def has_pickles(path: Path) -> bool:
    """Whether this is the Python version of CIFAR, so that an error can say what is wrong with it."""
    return any((path / name).exists() for name in ("data_batch_1", "cifar-10-batches-py", "cifar-100-python"))


def _refuse_missing(folder: Path, layout: Layout, part: Part) -> None:
    missing = [name for name in layout.files[part] if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder} is missing {', '.join(missing)}",
            why=f"the {'test' if part == 'val' else 'training'} images of {layout.title} are in "
            f"{len(layout.files[part])} file(s): {', '.join(layout.files[part])}",
            remedy=f"unpack {layout.archive} again"
            + (", or name other validation data with data.val" if part == "val" else ""),
        )


def _class_names(folder: Path, layout: Layout, kind: str) -> list[str]:
    """The names from the dataset's own file, or numbers where that file is missing."""
    file = folder / layout.label_names[kind]
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    names = [line.strip() for line in lines if line.strip()]
    return names or [str(number) for number in range(layout.num_classes[kind])]


def _read_file(file: Path, layout: Layout, kind: str, num_classes: int) -> tuple[Pixels, Labels]:
    size = file.stat().st_size
    if size == 0 or size % layout.record_bytes:
        raise UserError(
            f"{file} is damaged: its {size:,} bytes are not whole records",
            why=f"a {layout.title} record has {layout.record_bytes:,} bytes; "
            f"{size % layout.record_bytes:,} are left over after {size // layout.record_bytes:,} records",
            remedy=f"copy or download the file again (from {layout.archive})",
        )
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, layout.record_bytes)
    labels = records[:, list(layout.label_names).index(kind)].astype(np.int64)
    outside = np.flatnonzero(labels >= num_classes)
    if len(outside):
        number = int(outside[0])
        raise UserError(
            f"{file}: record {number} has label {labels[number]}, and there are {num_classes} classes",
            why=f"{len(outside):,} of {len(labels):,} records have a label outside 0..{num_classes - 1}; "
            "the file is damaged, or not of this dataset",
            remedy=f"copy or download the file again (from {layout.archive}), and check {layout.label_names[kind]}",
        )
    images = records[:, len(layout.label_names) :].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels
