"""Where the classes and the splits of a folder are: the level of the class folders, whatever lies above and beside it.

What is clear is taken, and said if it is not right at the path; what would be a guess is refused.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.data.sources.folders import some
from phalanx.data.sources.layouts import refusals
from phalanx.data.sources.layouts.tree import Branch, FolderTree, below
from phalanx.data.sources.splits import WORDS, Split, split_folders

# Folders that lie beside data and are no classes, where another folder clearly holds the classes.
ASIDES = (
    *("doc", "docs", "assets", "asset", "figures", "figs", "fig", "media", "static", "screenshots", "resources"),
    *("scripts", "src", "code", "notebooks", "tools", "tests", "examples", "demo", "samples", "sample", "misc"),
    *("results", "result", "runs", "logs", "output", "outputs", "plots", "models", "checkpoints", "weights", "papers"),
    *("meta", "lists", "annotation", "annotations", "labels", "masks", "unlabeled", "unlabelled", "extra", "pred"),
    *("seg_pred", "predict", "prediction"),
)
# Words of folders that number parts of one set: images_001, HAM10000_images_part_1, batch_2, fold3.
_PART_WORDS = {"image", "images", "img", "imgs", "part", "batch", "chunk", "shard", "fold", "folder", "archive"}

Classes = dict[bytes, tuple[bytes, ...]]  # class → its folders, relative to a level


@dataclass(frozen=True)
class Level:
    """A level of folders: of splits, of classes, or of classes with splits in each; or one with images only."""

    folder: Path
    splits: dict[Split, str] = field(default_factory=dict)  # folders of the splits
    classes: dict[Split, Classes] = field(default_factory=dict)  # all in `train`, unless each class has splits
    left_out: tuple[Path, ...] = ()  # folders with images that are in no class

    @property
    def names(self) -> list[bytes]:
        return sorted({name for classes in self.classes.values() for name in classes})


def find_level(
    tree: FolderTree,
    folder: Path,
    *,
    known: Collection[str] = (),
    splits: bool = True,
    class_level: int | None = None,
) -> Level:
    """The level of splits or of classes in a folder or below it.

    `known` are the classes of the training data or model. With `class_level`, the classes are so many levels down.
    """
    left_out: list[Path] = []
    while True:
        if splits and (found := _splits(tree, folder, known)):
            others = [below(folder, name) for name in tree.holders(folder) if os.fsdecode(name) not in found.values()]
            return Level(folder, splits=found, left_out=(*left_out, *others))
        if class_level is not None:
            return Level(folder, classes={"train": _at_level(tree, folder, class_level)})
        branches = tree.branches(folder)
        here = Level(folder, classes={"train": _each(tree.look(folder).folders)}, left_out=tuple(left_out))
        if not branches:
            return Level(folder, left_out=tuple(left_out))
        if splits and (by_split := _class_first(tree, folder, branches)):
            return Level(folder, classes=by_split, left_out=tuple(left_out))
        if known and any(branch.text in known for branch in branches):
            return here
        chosen = _way_down(tree, folder, branches)
        if chosen is None:
            return here
        left_out += [below(folder, branch.name) for branch in branches if branch is not chosen]
        folder = below(folder, chosen.name)


def _way_down(tree: FolderTree, folder: Path, branches: Sequence[Branch]) -> Branch | None:
    """The folder to go on in, where the classes are further down; None where the branches are the classes."""
    if len(branches) == 1:
        only = below(folder, branches[0].name)
        passed = not tree.look(only).images and bool(tree.holders(only))
        return branches[0] if passed or tree.is_nested(only) else None
    levels = [branch for branch in branches if branch.is_level]
    if not levels:
        _refuse_parts(folder, [branch.name for branch in branches])
        return None
    likely = [branch for branch in branches if branch.text.lower() not in ASIDES]
    if len(likely) == 1 and likely[0].is_level:
        return likely[0]
    with_splits = [branch for branch in levels if "train" in split_folders(map(os.fsdecode, branch.inside))]
    if with_splits and len(levels) == len(branches):
        raise refusals.several_datasets(folder, branches)
    raise refusals.levels_unclear(folder, branches)


def _splits(tree: FolderTree, folder: Path, known: Collection[str]) -> dict[Split, str]:
    """The folders of splits at a level. A class may be called `train`: then its images are directly in it."""
    holders = [os.fsdecode(name) for name in tree.holders(folder)]
    by_split = split_folders(holders)
    named = [name for names in by_split.values() for name in names]
    others = [name for name in holders if name not in named]
    if not by_split or any(name in known and _is_flat(tree, folder / name) for name in named):
        return {}
    if "train" not in by_split:
        return {} if others else _one_each(folder, by_split)
    flat = [name for name in by_split["train"] if _is_flat(tree, folder / name)]
    if flat:
        if others and len(by_split) == 1:
            return {}
        raise refusals.flat_splits(tree, folder, flat[0])
    likely = [name for name in others if name.lower() not in ASIDES]
    if len(by_split) == 1 and likely:
        raise refusals.class_or_split(folder, by_split["train"][0], likely)
    return _one_each(folder, by_split)


def _is_flat(tree: FolderTree, folder: Path) -> bool:
    return tree.has_images(folder) and len(tree.holders(folder)) < 2


def _one_each(folder: Path, by_split: dict[Split, list[str]]) -> dict[Split, str]:
    for split, names in by_split.items():
        if len(names) > 1:
            raise refusals.same_split(folder, split, names)
    return {split: names[0] for split, names in by_split.items() if names}


def _class_first(tree: FolderTree, folder: Path, branches: Sequence[Branch]) -> dict[Split, Classes]:
    """Classes with the splits in each of them: `cat/train`, `cat/test`, `dog/train` …"""
    inside = {branch.name: [os.fsdecode(name) for name in branch.first_inside] for branch in branches}
    plain = all(names and all(name.lower() in WORDS for name in names) for names in inside.values())
    if len(branches) < 2 or not plain or all(len(names) == 1 for names in inside.values()):
        return {}
    found: dict[Split, Classes] = {}
    for name, inner in inside.items():
        for split, folders in split_folders(inner).items():
            if any(tree.branch(below(folder, name), os.fsencode(one)).is_level for one in folders):
                return {}  # datasets, each with splits and classes of its own
            found.setdefault(split, {})[name] = tuple(name + b"/" + os.fsencode(one) for one in folders)
    return found if "train" in found else {}


def _at_level(tree: FolderTree, folder: Path, level: int) -> Classes:
    """The folders `level` levels down by their names: those with the same name are one class."""
    classes: dict[bytes, list[bytes]] = {}
    for path in _folders_at(tree, folder, level):
        classes.setdefault(path.rpartition(b"/")[2], []).append(path)
    if not classes:
        deepest = next(depth for depth in range(level) if not any(_folders_at(tree, folder, depth + 1)))
        raise refusals.no_such_level(folder, level, deepest)
    return {name: tuple(paths) for name, paths in sorted(classes.items())}


def _folders_at(tree: FolderTree, folder: Path, level: int) -> Iterator[bytes]:
    for name in tree.look(folder).folders:
        if level == 1:
            yield name
        else:
            yield from (name + b"/" + path for path in _folders_at(tree, below(folder, name), level - 1))


def _refuse_parts(folder: Path, names: Sequence[bytes]) -> None:
    """Refuse folders that number the parts of one set of images."""
    texts = [os.fsdecode(name).lower() for name in names]
    stems = {re.sub(r"\d+", "#", text) for text in texts}
    words = set(re.findall(r"[a-z]+", stems.pop())) if len(stems) == 1 else set()
    if words & _PART_WORDS:
        raise refusals.only_parts(folder, names)


def classes_found(level: Level, holds: Callable[[Path], bool]) -> str:
    """The line that says where class folders were found, with their names."""
    of_class = level.classes["train"]
    names = [n for n, folders in of_class.items() if any(holds(below(level.folder, one)) for one in folders)]
    shown = some(names, 5).partition(" (")[0]
    return f"class folders found in {level.folder}: {shown} ({len(names):,} classes)"


def _each(folders: Sequence[bytes]) -> Classes:
    return {name: (name,) for name in folders}
