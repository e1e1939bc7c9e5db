"""Folders of image files as training and validation data: their layout found, their images opened."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.data.sources.folders import (
    DISK,
    ClassFolders,
    FileSource,
    Names,
    file_source,
    open_class_folders,
    some,
)
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.layouts import refusals
from phalanx.data.sources.layouts.labels_beside import find_labels
from phalanx.data.sources.layouts.level import Level, classes_found, find_level
from phalanx.data.sources.layouts.split_lists import SplitLists, find_split_lists, listed_rows
from phalanx.data.sources.layouts.tree import FolderTree, below
from phalanx.data.sources.lists.flat_folder import open_flat_folder
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.splits import WORDS, Split
from phalanx.errors import UserError


@dataclass(frozen=True)
class Layout:
    """The parts of a folder: levels of class folders, or a flat folder of validation images."""

    path: Path
    train: ClassFolders | None
    val: ClassFolders | Path | None  # a path: images directly in it
    val_split: Split
    lists: SplitLists | None
    train_notes: tuple[str, ...]
    val_notes: tuple[str, ...]
    flat: Path | None = None  # where all images are directly in one folder


def open_folder(path: Path, request: OpenRequest) -> Labelled:
    """The training part of a folder, or everything."""
    layout = find_layout(path, request)
    if layout.train is None:
        return _open_flat(layout.flat or path, path, request)
    source = _open(layout.train, request, layout.train_notes)
    return source if layout.lists is None else _listed(source, layout.lists, "train")


def open_folder_val(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation part of a folder, if it has one."""
    layout = find_layout(path, request, needs_train=False)
    if layout.lists is not None and layout.train is not None:
        return _listed(_open(layout.train, request, ()), layout.lists, "val")
    if isinstance(layout.val, Path):
        source = _open_flat(layout.val, path, request)
        return replace(source, notes=(*layout.val_notes, *source.notes))
    if layout.val is None:
        return None
    return _open(layout.val, request, layout.val_notes)


def find_layout(path: Path, request: OpenRequest, *, needs_train: bool = True) -> Layout:
    """The parts of a folder. What is not clear is refused; `needs_train` refuses one with validation data only."""
    tree, known = request.tree, request.classes or ()
    class_level = _class_level(request)
    level = find_level(tree, path, known=known, class_level=class_level)
    if level.splits:
        return _of_splits(path, level, request, needs_train=needs_train)
    if not level.classes:
        if not tree.holds(level.folder):
            raise _no_images(tree, path)
        return Layout(path, None, None, "val", None, (), (), flat=level.folder)
    if "val" in level.classes or "test" in level.classes:
        return _class_first(path, level, tree)
    if known and (flat := _only_folder(level, known)) and _has_labels(flat, path, request, list(known)):
        return Layout(path, None, None, "val", None, (), (), flat=flat)
    lists = find_split_lists(tree, level.folder, level.names, path)
    folders = ClassFolders(level.folder, level.classes["train"], class_level is not None or bool(known))
    return Layout(path, folders, None, "val", lists, _notes(path, level, tree), ())


def _of_splits(path: Path, level: Level, request: OpenRequest, *, needs_train: bool) -> Layout:
    """Folders train/ and val/, with class folders in them or further down."""
    tree, classes = request.tree, list(request.classes or [])
    class_level = _class_level(request)
    train, train_notes = None, tuple[str, ...]()
    if "train" in level.splits:
        folder = level.folder / level.splits["train"]
        found = find_level(tree, folder, known=classes, splits=False, class_level=class_level)
        if not found.classes:
            raise refusals.flat_splits(tree, folder.parent, folder.name)
        train = ClassFolders(found.folder, found.classes["train"], class_level is not None or bool(classes))
        classes = classes or [os.fsdecode(name) for name in found.names]
        train_notes = _split_notes(path, level, found, tree)
    elif needs_train:
        raise refusals.no_training_folder(level.folder, list(level.splits.values()))
    val, split, val_notes = _val_of_splits(level, tree, classes, class_level)
    if isinstance(val, Path) and split == "test" and not _has_labels(val, path, request, classes):
        unused = f"{val} is not used: its {len(tree.look(val).images):,} images are in no class folders"
        return Layout(path, train, None, split, None, (*train_notes, unused), ())
    if train is not None and isinstance(val, ClassFolders):
        train = replace(train, needed=_with_images(tree, val) & frozenset(train.folders))
    return Layout(path, train, val, split, None, train_notes, val_notes)


def _has_labels(folder: Path, top: Path, request: OpenRequest, classes: list[str]) -> bool:
    """Whether a flat folder has labels: test images of a competition often have none."""
    if request.config.val_labels is not None:
        return True
    return find_labels(request.tree, folder, request.tree.look(folder).images, classes, top) is not None


def _val_of_splits(
    level: Level, tree: FolderTree, known: Collection[str], class_level: int | None
) -> tuple[ClassFolders | Path | None, Split, tuple[str, ...]]:
    split: Split = "val" if "val" in level.splits else "test"
    if split not in level.splits:
        return None, split, ()
    folder = level.folder / level.splits[split]
    notes = _val_notes(folder, split, level)
    found = find_level(tree, folder, known=known, splits=False, class_level=class_level)
    if not found.classes:
        return found.folder, split, notes
    if flat := _only_folder(found, known):
        return flat, split, notes
    return ClassFolders(found.folder, found.classes["train"], level_given=True), split, notes


def _only_folder(level: Level, known: Collection[str]) -> Path | None:
    """The only folder of a level, if it is not a class: tiny-imagenet's val/images/."""
    name = level.names[0]
    return None if len(level.names) > 1 or os.fsdecode(name) in known else below(level.folder, name)


def _class_first(path: Path, level: Level, tree: FolderTree) -> Layout:
    split: Split = "val" if "val" in level.classes else "test"
    names = dict.fromkeys(level.names)
    train, val = (
        ClassFolders(level.folder, {name: level.classes[part].get(name, ()) for name in names}, True, frozenset(names))
        for part in ("train", split)
    )
    shown = f"each class folder has the splits inside: {level.folder}/{os.fsdecode(level.names[0])}/"
    notes = (*_notes(path, level, tree), f"{shown}{' and '.join(_inner(level, split))}")
    unused = f"the test folders inside of the classes in {level.folder} are not used: validation has its own"
    return Layout(path, train, val, split, None, notes, (unused,) if {"val", "test"} <= set(level.classes) else ())


def _inner(level: Level, split: Split) -> list[str]:
    """The names of the split folders inside of a class."""
    folders = (next(iter(level.classes[part].values()))[0] for part in ("train", split))
    return [os.fsdecode(folder.rpartition(b"/")[2]) for folder in folders]


def _with_images(tree: FolderTree, found: ClassFolders) -> frozenset[bytes]:
    return frozenset(
        name for name, folders in found.folders.items() if any(tree.holds(below(found.root, one)) for one in folders)
    )


def _open(where: ClassFolders, request: OpenRequest, notes: tuple[str, ...]) -> FileSource:
    return open_class_folders(where, channels=request.channels, pool=request.pool, notes=notes, storage=request.storage)


def _listed(source: FileSource, lists: SplitLists, part: Part) -> Labelled:
    """The samples of a split by its list."""
    path = lists.train if part == "train" else lists.val
    rows, unknown = listed_rows(source, path)
    if not len(rows):
        raise UserError(
            f"{path} names no image of {source.root}",
            why=f"its first line is {unknown[0]!r}" if unknown else "it is empty",
            remedy="check that list and folders belong together, or move the list away to use the folders alone",
        )
    notes = [f"{'training' if part == 'train' else 'validation'} images by {path}: {len(rows):,} of {len(source):,}"]
    if unknown:
        notes.append(f"{len(unknown):,} lines of {path} name no image that is there: {unknown[0]} …")
    return replace(source.subset(rows), notes=(*source.notes, *notes) if part == "train" else tuple(notes))


def _found(folder: Path, top: Path, request: OpenRequest) -> FileSource | None:
    """A flat folder with labels that were found beside it."""
    images = request.tree.look(folder).images
    found = find_labels(request.tree, folder, images, request.classes or [], top) if request.classes else None
    if found is None:
        return None
    classes = list(request.classes or [])
    matched = f", matched by number: 0 is {classes[0]}, and so on" if found.by_number else ""
    return file_source(
        f"flat folder {folder} labelled by {found.path}",
        folder,
        Names(images),
        found.labels,
        classes,
        channels=request.channels,
        pool=request.pool,
        label_list=found.path,
        notes=(f"labels of {folder}: {found.path}, found beside it{matched}",),
        storage=request.storage,
    )


def _open_flat(folder: Path, top: Path, request: OpenRequest) -> FileSource:
    """Images directly in a folder, if the classes are known: with data.val_labels, or a list that is found."""
    images = request.tree.look(folder).images
    if request.storage is not DISK:
        raise UserError(
            f"{folder} holds no class folders",
            why=f"its {len(images):,} images, such as {os.fsdecode(images[0])}, are directly in it, and lists of their "
            "labels are only read beside images on disk",
            remedy="copy or unpack it to a folder, and name that; or sort the images into class folders",
        )
    if request.classes is None:
        raise UserError(
            f"{folder} holds no class folders",
            why=f"it holds {len(images):,} images such as {os.fsdecode(images[0])}, and nothing says of which class",
            remedy=f"if it is one of several class folders, name the one that holds them: --data {folder.parent}; else "
            + refusals.how_to_label(folder, os.fsdecode(images[0])),
        )
    if request.config.val_labels is not None:
        labels = request.config.val_labels
        return open_flat_folder(
            folder, labels, request.classes, channels=request.channels, pool=request.pool, config=request.config
        )
    source = _found(folder, top, request)
    if source is None:
        raise UserError(
            f"the {len(images):,} images of {folder} have no labels",
            why="they are directly in it and not in class folders, and no list beside them has a label for each",
            remedy="give a list of their labels with data.val_labels, or sort them into class folders",
        )
    return source


def _notes(path: Path, level: Level, tree: FolderTree) -> tuple[str, ...]:
    notes = [] if level.folder == path else [classes_found(level, tree.holds)]
    return (*notes, *_left_out(path, level, tree))


def _split_notes(path: Path, level: Level, found: Level, tree: FolderTree) -> tuple[str, ...]:
    """Where the class folders of the training split are, if not in PATH/train; and what lies beside the splits."""
    plain = level.folder == path and found.folder == level.folder / level.splits["train"]
    usual = all(name in WORDS for name in level.splits.values())
    notes = [] if plain and usual else [classes_found(found, tree.holds)]
    return (*notes, *_left_out(path, level, tree))


def _left_out(path: Path, level: Level, tree: FolderTree) -> list[str]:
    """Folders beside the classes or splits, and above them, that are not used."""
    notes = []
    if level.left_out:
        names = [os.fsencode(folder.relative_to(path)) for folder in level.left_out]
        notes.append(f"folders with images that are in no class are left out: {some(names)}")
    above = [level.folder, *level.folder.parents]
    above = above[: above.index(path) + 1] if level.splits else above[1 : above.index(path) + 1]
    skipped = [name for folder in reversed(above) for name in tree.look(folder).skipped]
    if skipped:
        notes.append(f"hidden and system folders in {path} are left out: {some(skipped)}")
    return notes


def _val_notes(folder: Path, split: Split, level: Level) -> tuple[str, ...]:
    if split == "test":
        return (f"validation: {folder} (there is no val folder beside it)",)
    if "test" in level.splits:
        return (f"{level.folder / level.splits['test']} is not used: validation is {folder}",)
    return ()


def _no_images(tree: FolderTree, path: Path) -> UserError:
    return UserError(
        f"{path} holds no images",
        why=f"seen: {refusals.outline(tree, path)}",
        remedy="check the path, and that the data is completely unpacked",
    )


def _class_level(request: OpenRequest) -> int | None:
    """Which level the classes are, if the settings say it: groups that are folders lie in the class folders."""
    config = request.config
    return config.class_level or (1 if config.group == "folder" else None)
