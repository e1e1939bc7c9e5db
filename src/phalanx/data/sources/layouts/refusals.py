"""What is said of folders whose classes would be a guess: the levels that were seen, and what to write."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from phalanx.data.sources.folders import some
from phalanx.data.sources.layouts.tree import Branch, FolderTree, below
from phalanx.errors import UserError

LEVEL = "data.class_level"
LISTS = "or write a list of lines `path label` and give --data list:FILE"


def outline(tree: FolderTree, folder: Path) -> str:
    """A folder and what is in it, for an error: `pets: images/ (7,390 images), annotations/ (list.txt …), README`."""
    found = tree.look(folder)
    inside = [f"{os.fsdecode(name)}/ ({_content(tree, below(folder, name))})" for name in found.folders[:6]]
    inside += [f"… {len(found.folders) - 6:,} more folders"] if len(found.folders) > 6 else []
    inside += [f"{len(found.images):,} images such as {os.fsdecode(found.images[0])}"] if found.images else []
    inside += [some(found.files, 3)] if found.files else []
    return f"{folder}: {', '.join(inside) or 'nothing'}"


def _content(tree: FolderTree, folder: Path) -> str:
    found = tree.look(folder)
    what = [f"{len(found.images):,} images" if found.images else "no images"]
    what += [f"{len(found.folders):,} folders"] if found.folders else []
    what += [f"{len(found.files):,} files such as {os.fsdecode(found.files[0])}"] if found.files else []
    return ", ".join(what)


def levels_unclear(folder: Path, branches: Sequence[Branch]) -> UserError:
    """Folders that hold nothing but folders of images: either may be the classes."""
    levels = [branch for branch in branches if branch.is_level]
    first = levels[0]
    others = [branch.text for branch in branches if not branch.is_level]
    seen = "; ".join(f"{branch.text}/ holds the folders {some(branch.inside)}" for branch in levels[:3])
    seen += f"; {len(levels) - 3:,} more of this kind" if len(levels) > 3 else ""
    seen += f"; images are directly in {some([os.fsencode(name) for name in others])}" if others else ""
    return UserError(
        f"it is not clear which folders in {folder} are the classes",
        why=seen,
        remedy=f"{LEVEL}=1 if {some([branch.name for branch in branches], 3)} are the classes; {LEVEL}=2 if "
        f"{some(first.inside, 3)} are; or name the one folder with the classes: --data {first.end}",
    )


def several_datasets(folder: Path, branches: Sequence[Branch]) -> UserError:
    seen = "; ".join(f"{branch.text}/ holds the folders {some(branch.inside, 3)}" for branch in branches[:3])
    return UserError(
        f"{folder} holds {len(branches):,} datasets: {some([branch.name for branch in branches])}",
        why=f"some of them have splits of their own: {seen}",
        remedy=f"name one of them: --data {below(folder, branches[0].name)}",
    )


def flat_splits(tree: FolderTree, folder: Path, train: str) -> UserError:
    """Splits with images directly in them, and no labels."""
    images = tree.look(folder / train).images
    return UserError(
        f"{folder / train} holds {len(images):,} images and no class folders",
        why=f"nothing says which class an image such as {os.fsdecode(images[0])} has; seen: {outline(tree, folder)}",
        remedy=how_to_label(folder / train, os.fsdecode(images[0])),
    )


def how_to_label(folder: Path, name: str) -> str:
    """The remedy for images without labels, with one of them as the example."""
    guess = name.rstrip("0123456789").partition(".")[0].rstrip("0123456789-_ ") or "cat"
    return (
        f"put the images of each class into a folder of its own, such as {folder}/{guess}/{name}; "
        f"or write a list with a line for each, such as `{folder.name}/{name} {guess}`, into {folder.parent}/train.txt "
        f"and give --data {folder.parent}/train.txt"
    )


def same_split(folder: Path, split: str, names: Iterable[str]) -> UserError:
    shown = ", ".join(sorted(names))
    return UserError(
        f"{folder} has several folders for the split {split}: {shown}",
        why="which of them is meant would be a guess",
        remedy="name one with --data (and data.val for validation), or move the other away",
    )


def class_or_split(folder: Path, train: str, others: Sequence[str]) -> UserError:
    """A folder called train beside class folders, with folders in it."""
    return UserError(
        f"it is not clear whether {folder / train} is the training split or a class",
        why=f"it holds folders of images as a split does, and beside it are {', '.join(others[:5])} and no val or test",
        remedy=f"for the split: --data {folder / train}; for a class: {LEVEL}=1",
    )


def only_parts(folder: Path, names: Sequence[bytes]) -> UserError:
    """Folders that number the parts of one heap of images."""
    return UserError(
        f"the folders in {folder} look like parts of one set of images, not like classes: {some(names)}",
        why="their names differ only in a number",
        remedy=f"give the list with their labels: --data list:FILE; if they are the classes: {LEVEL}=1",
    )


def no_training_folder(folder: Path, splits: Sequence[str]) -> UserError:
    return UserError(
        f"{folder} has no training folder",
        why=f"its folders are {', '.join(splits)}",
        remedy=f"to train on one of them, name it: --data {folder / splits[0]}",
    )


def no_such_level(folder: Path, level: int, deepest: int) -> UserError:
    return UserError(
        f"{folder} has no folders at level {level}",
        why=f"{LEVEL}={level} counts from the folders in {folder}, and images are at most {deepest} levels down",
        remedy=f"leave {LEVEL} out, or give a level from 1 to {max(deepest, 1)}",
    )
