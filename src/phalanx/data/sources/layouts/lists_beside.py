"""Lists beside images: flowers102's `train_list.txt` and `val_list.txt` beside `jpg/`, Kaggle's `train.csv`.

A list is found by its content: its first lines have to name images that exist, and something else that can be a label.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from phalanx.data.sources.folders import IMAGE_ENDINGS
from phalanx.data.sources.layouts.level import ASIDES
from phalanx.data.sources.layouts.tree import FolderTree, below
from phalanx.data.sources.splits import Split, split_word
from phalanx.errors import UserError

LIST_ENDINGS = (".txt", ".lst", ".list", ".tsv", ".csv")
LINES_TRIED = 12
FILES_TRIED = 60  # that have the ending of a list
FOLDERS_TRIED = 20  # from which the paths of a list may start
START_BYTES = 65_536
_SEPARATORS = ("\t", ",", ";", "|")


@dataclass(frozen=True)
class FoundList:
    """A list, and the folder that its paths start from."""

    path: Path
    root: Path


@dataclass(frozen=True)
class Lists:
    """The lists of a folder."""

    train: FoundList
    val: FoundList | None
    val_split: Split = "val"
    test: FoundList | None = None  # that is not used, since there is `val`


def find_lists(path: Path, tree: FolderTree | None = None) -> Lists | None:
    """The lists beside the images of a folder, or of the only folder in it. None where folders have to tell."""
    tree = tree or FolderTree()
    folder = path
    while True:
        if found := _in_folder(tree, folder):
            return found
        likely = (name for name in tree.look(folder).folders if os.fsdecode(name).lower() not in ASIDES)
        holders = list(islice((name for name in likely if tree.holds(below(folder, name))), 2))
        if len(holders) != 1:
            return None
        folder = below(folder, holders[0])


def _in_folder(tree: FolderTree, folder: Path) -> Lists | None:
    by_split: dict[Split | None, list[FoundList]] = {}
    for file in _candidates(tree, folder):
        if root := _start_of_paths(tree, folder, file):
            by_split.setdefault(split_word(file.stem), []).append(FoundList(file, root))
    train = by_split.get("train", [])
    if not train:
        # A list without a split in its name is one of labels only where folders can be no classes.
        unnamed = by_split.get(None, [])
        return Lists(unnamed[0], None) if len(unnamed) == 1 and _is_flat(tree, folder) else None
    val_split: Split = "val" if "val" in by_split else "test"
    val, test = (_plainest(folder, by_split[split]) if split in by_split else None for split in (val_split, "test"))
    return Lists(_plainest(folder, train), val, val_split, None if test == val else test)


def _is_flat(tree: FolderTree, folder: Path) -> bool:
    """Whether all images are directly in a folder, or directly in the only folder in it."""
    branches = tree.branches(folder)
    return not branches if tree.has_images(folder) else len(branches) == 1 and not branches[0].is_level


def _plainest(folder: Path, lists: Sequence[FoundList]) -> FoundList:
    """The list with the shortest name of a split: train.txt before train_small.txt. Two alike are refused."""
    ordered = sorted(lists, key=lambda one: (len(one.path.stem), one.path.name))
    if len(ordered) > 1 and len(ordered[0].path.stem) == len(ordered[1].path.stem):
        raise UserError(
            f"{folder} has several lists of the same split: {ordered[0].path.name}, {ordered[1].path.name}",
            why="both name images that are there, and which is meant would be a guess",
            remedy=f"name one of them: --data {ordered[0].path}",
        )
    return ordered[0]


def _candidates(tree: FolderTree, folder: Path) -> Iterator[Path]:
    names = (os.fsdecode(name) for name in tree.look(folder).files)
    yield from islice((folder / name for name in names if name.lower().endswith(LIST_ENDINGS)), FILES_TRIED)


def _start_of_paths(tree: FolderTree, folder: Path, file: Path) -> Path | None:
    """The folder that the paths of a list start from: the list's own, or one beside it; None if it is no list."""
    rows = [cells for line in first_lines(file, LINES_TRIED) if len(cells := cells_of(line)) > 1]
    holders = tree.holders(folder)[:FOLDERS_TRIED]
    for root in (folder, *(below(folder, name) for name in holders)):
        named = [_names_image(root, cells) for cells in rows]
        # The first line may be a header, and some files may be missing.
        if named and (sum(named) * 2 > len(named) or (len(named) == 2 and named[1])):
            return root
    return None


def _names_image(root: Path, cells: Sequence[str]) -> bool:
    """Whether one cell of a line is an image, and another is not: two images a line are no label."""
    images = [is_image(root, cell) for cell in cells]
    return any(images) and not all(images)


def is_image(root: Path, text: str) -> bool:
    """Whether a path in a list is an image below a folder, maybe written without its ending."""
    name = text.strip().replace("\\", "/")
    if not name or name.endswith("/"):
        return False
    try:
        if os.fsencode(name).lower().endswith(IMAGE_ENDINGS):
            return (root / name).is_file()
        endings = (os.fsdecode(ending) for ending in IMAGE_ENDINGS)  # Kaggle's tables name images without it
        return any((root / f"{name}{each}").is_file() for ending in endings for each in (ending, ending.upper()))
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return False


def first_lines(file: Path, count: int) -> list[str]:
    """The first lines of a text file, without empty ones and comments; none where it is no text."""
    try:
        if not file.is_file():  # a link to a pipe or a device
            return []
        with file.open("rb") as opened:
            start = opened.read(START_BYTES)
    except OSError:
        return []
    if b"\0" in start:
        return []
    whole = start if len(start) < START_BYTES else start[: start.rfind(b"\n") + 1]
    lines = (line.strip() for line in whole.decode("utf-8-sig", "surrogateescape").splitlines())
    return list(islice((line for line in lines if line and not line.startswith("#")), count))


def cells_of(line: str) -> list[str]:
    """The cells of a line, whatever separates them; without a separator the last blank does."""
    separator = next((separator for separator in _SEPARATORS if separator in line), None)
    cells = line.rsplit(maxsplit=1) if separator is None else line.split(separator)
    return [cell.strip().strip('"') for cell in cells]
