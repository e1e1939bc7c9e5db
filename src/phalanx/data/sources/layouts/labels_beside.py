"""The labels of a flat validation folder, found beside it: tiny-imagenet's val_annotations.txt, Kaggle's solutions."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.layouts.lists_beside import LIST_ENDINGS, cells_of
from phalanx.data.sources.layouts.tree import FolderTree
from phalanx.data.sources.splits import split_word

LARGEST_LIST_BYTES = 200_000_000


@dataclass(frozen=True)
class FoundLabels:
    """A list, and the label of each image that it was asked for."""

    path: Path
    labels: Labels
    by_number: bool  # labels are numbers of classes, not their names


def find_labels(
    tree: FolderTree, folder: Path, images: Sequence[bytes], classes: Sequence[str], top: Path
) -> FoundLabels | None:
    """A list with a known label for every image of a folder: in it, beside it, or in a folder above it up to `top`."""
    split = split_word(folder.name) or split_word(folder.parent.name)
    for place in _up_to(folder, top):
        for name in map(os.fsdecode, tree.look(place).files):
            about_it = split is not None and split_word(Path(name).stem) == split
            if not name.lower().endswith(LIST_ENDINGS) or not (about_it or place == folder):
                continue
            if found := _labels_in(place / name, images, classes):
                return found
    return None


def _up_to(folder: Path, top: Path) -> list[Path]:
    places = [folder, *folder.parents]
    return places[: max(2, places.index(top) + 1)] if top in places else places[:2]


def _labels_in(path: Path, images: Sequence[bytes], classes: Sequence[str]) -> FoundLabels | None:
    """The labels of all images, if the list has one for each; None if it is another kind of file."""
    of_file = _second_cells(path)
    texts = [_for_image(of_file, image) for image in images]
    if not texts or None in texts:
        return None
    number = {name: i for i, name in enumerate(classes)}
    by_name = [number.get(str(text)) for text in texts]
    if None not in by_name:
        return FoundLabels(path, np.array(by_name, dtype=np.int64), by_number=False)
    numbers = [int(text) if text is not None and text.isdecimal() else -1 for text in texts]
    if all(0 <= label < len(classes) for label in numbers):
        return FoundLabels(path, np.array(numbers, dtype=np.int64), by_number=True)
    return None


def _second_cells(path: Path) -> Mapping[str, str]:
    """File name without folders → the first word of the second cell: `val_0.JPEG<tab>n03444034<tab>0<tab>32 …`."""
    try:
        if path.stat().st_size > LARGEST_LIST_BYTES:
            return {}
        lines = path.read_bytes().decode("utf-8-sig", "surrogateescape").splitlines()
    except OSError:
        return {}
    rows = (cells_of(line) for line in map(str.strip, lines) if line)
    return {
        cells[0].replace("\\", "/").rpartition("/")[2]: (cells[1].split() or [""])[0]
        for cells in rows
        if len(cells) > 1
    }


def _for_image(of_file: Mapping[str, str], image: bytes) -> str | None:
    name = os.fsdecode(image)
    return of_file.get(name) or of_file.get(name.rpartition(".")[0])  # some lists leave the ending out
