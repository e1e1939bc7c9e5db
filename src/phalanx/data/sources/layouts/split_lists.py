"""Lists that divide class folders into splits: Food-101's `meta/train.txt` and `meta/test.txt`, lines `class/image`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.layouts.lists_beside import LIST_ENDINGS, first_lines, is_image
from phalanx.data.sources.layouts.tree import FolderTree
from phalanx.data.sources.splits import WORDS, Split

PLACES = ("", "meta", "splits", "split", "lists")
LINES_TRIED = 12


@dataclass(frozen=True)
class SplitLists:
    """The list of each split; `val` may be the test list."""

    train: Path
    val: Path
    val_split: Split


def find_split_lists(tree: FolderTree, classes: Path, names: Sequence[bytes], top: Path) -> SplitLists | None:
    """Lists of images in the class folders `names` of `classes`, in it or in a folder above it up to `top`."""
    above = [classes, *classes.parents]
    known = frozenset(map(os.fsdecode, names))
    for folder in above[: above.index(top) + 1] if top in above else above[:1]:
        for place in PLACES:
            found = _in_place(tree, folder / place, classes, known)
            val: Split = "val" if "val" in found else "test"
            if "train" in found and val in found:
                return SplitLists(found["train"], found[val], val)
    return None


def _in_place(tree: FolderTree, place: Path, root: Path, classes: frozenset[str]) -> dict[Split, Path]:
    if not place.is_dir():
        return {}
    files = [Path(os.fsdecode(name)) for name in tree.look(place).files]
    lists = {WORDS[file.stem.lower()]: place / file for file in files if _is_split_list(file)}
    return {split: path for split, path in lists.items() if _names_images(path, root, classes)}


def _is_split_list(file: Path) -> bool:
    return file.stem.lower() in WORDS and file.suffix.lower() in LIST_ENDINGS


def _names_images(path: Path, root: Path, classes: frozenset[str]) -> bool:
    """Whether most of the first lines are images of the classes and nothing else, maybe below other folders."""
    lines = first_lines(path, LINES_TRIED)
    return sum(_names_image(line, root, classes) for line in lines) * 2 > len(lines)


def _names_image(line: str, root: Path, classes: frozenset[str]) -> bool:
    parts = line.replace("\\", "/").split("/")
    start = next((start for start, part in enumerate(parts[:-1]) if part in classes), None)
    return start is not None and is_image(root, "/".join(parts[start:]))


def listed_rows(source: FileSource, path: Path) -> tuple[Indices, list[str]]:
    """(the samples that a list names, lines that name none), with or without the images' endings."""
    number_of: dict[str, int] = {}
    for index in range(len(source.names)):
        name = os.fsdecode(source.names[index])
        number_of[name] = number_of[name.rpartition(".")[0]] = index
    rows, unknown = [], []
    lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    for line in filter(None, map(str.strip, lines)):
        parts = line.replace("\\", "/").split("/")
        tried = ("/".join(parts[start:]) for start in range(len(parts)))  # lists may start from a folder above
        row = next((number_of[name] for name in tried if name in number_of), None)
        if row is None:
            unknown.append(line)
        else:
            rows.append(row)
    return np.array(sorted(set(rows)), dtype=np.int64), unknown
