"""Text lists of labels: for a flat validation folder, or for files anywhere (`path label`)."""

import os
import re
from array import array
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from phalanx.data.sources.folders import FileSource, Names, file_source, look, some
from phalanx.data.sources.labelled import Labels
from phalanx.errors import UserError, nearest

LARGEST_LABEL = 999_999  # a label beyond it is a mistaken column, not a class
WHOLE_NUMBER = re.compile(r"(-?\d+)(?:\.0*)?")  # MXNet writes labels as 3.000000


def open_flat_folder(
    folder: Path, label_list: Path, classes: list[str], *, channels: int | None, pool: Executor | None
) -> FileSource:
    """Images directly in a folder, such as ImageNet's validation; a list has lines `file label`, or a label per line.

    A label is a class name or its number. Where each line is a label alone, they follow the sorted file names.
    """
    images = look(folder).images
    lookup = _lookup(classes)
    lines = list(_lines(label_list))
    if not lines:
        raise _empty(label_list)
    if len(lines[0][1].split()) == 1 or lines[0][1] in lookup:  # a class name may contain blanks
        labels = [_resolved(label_list, number, text, classes, lookup) for number, text in lines]
        _refuse_other_count(folder, len(images), label_list, len(labels))
    else:
        labels = _by_file_name(folder, images, label_list, lines, classes)
    return file_source(
        f"flat folder {folder} labelled by {label_list}",
        folder,
        Names(images),
        np.array(labels, dtype=np.int64),
        classes,
        channels=channels,
        pool=pool,
        label_list=label_list,
    )


def open_list(
    path: Path, classes: list[str] | None, *, channels: int | None, pool: Executor | None, root: Path | None = None
) -> FileSource:
    """A list of files: `path label` a line, or MXNet's `number<tab>label<tab>path`; relative to `root`.

    Without a root, paths are relative to the list's folder.

    Where `classes` are known, labels are their names or numbers; otherwise the labels make the classes.
    """
    root = root or path.parent
    names, codes, texts = Names(), array("q"), dict[str, tuple[int, int]]()  # label → (its code, line of the first)
    for number, line in _lines(path):
        name, text = _columns(path, number, line)
        names.append(os.fsencode(name))
        codes.append(texts.setdefault(_tidy(text), (len(texts), number))[0])
    if not len(names):
        raise _empty(path)
    _refuse_missing(path, root, names)
    if classes is None:
        classes = _classes_of(path, texts)
    lookup = _lookup(classes)
    label_of_code = [_resolved(path, number, text, classes, lookup) for text, (_, number) in texts.items()]
    labels: Labels = np.array(label_of_code, dtype=np.int64)[np.array(codes, dtype=np.int64)]
    return file_source(f"list {path}", root, names, labels, classes, channels=channels, pool=pool, label_list=path)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without empty lines and comments."""
    try:
        with path.expanduser().open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if "\0" in line:
                    raise UserError(
                        f"{path} is not a text file",
                        why=f"line {number} contains a zero byte",
                        remedy="give a list of lines `path label`; name another format as FORMAT:PATH",
                    )
                line = line.strip()
                if line and not line.startswith("#"):
                    yield number, line
    except OSError as error:
        raise UserError(
            f"{path} cannot be read", why=error.strerror or str(error), remedy="check the path and its permissions"
        ) from error


def _columns(path: Path, number: int, line: str) -> tuple[str, str]:
    """(file, label) of a line. Without tabs the last blank separates them, so that a path may contain blanks."""
    columns = line.split("\t") if "\t" in line else line.rsplit(maxsplit=1)
    if len(columns) == 2:
        return columns[0].strip(), columns[1].strip()
    numbered = [WHOLE_NUMBER.fullmatch(column.strip()) is not None for column in columns[:2]]
    if len(columns) == 3 and all(numbered):
        return columns[2].strip(), columns[1].strip()
    if len(columns) > 3 and all(numbered):
        why = f"it has {len(columns) - 2} labels (an MXNet list for detection?), and a classifier's image has one"
    else:
        why = f"it has {len(columns)} column(s): {line[:80]!r}"
    raise UserError(
        f"{path}, line {number} does not name one file and one label",
        why=why,
        remedy="write `path label`, separated by a tab or a blank, or MXNet's `number<tab>label<tab>path`",
    )


def _tidy(text: str) -> str:
    """A label as a class name: 3.000000 is 3."""
    number = WHOLE_NUMBER.fullmatch(text)
    return str(int(number[1])) if number else text


def _classes_of(path: Path, texts: dict[str, tuple[int, int]]) -> list[str]:
    """The classes of these labels: 0 … the largest number; or, if any is a name, all names in order."""
    numbers = [int(text) for text in texts if WHOLE_NUMBER.fullmatch(text)]
    if len(numbers) < len(texts):
        return sorted(texts)
    for wrong in (min(numbers), max(numbers)):
        if not 0 <= wrong <= LARGEST_LABEL:
            raise UserError(
                f"{path}, line {texts[str(wrong)][1]} has the label {wrong}",
                why=f"a number as label is a class, counted from 0 to at most {LARGEST_LABEL:,}",
                remedy="check the columns of the list, or write class names instead of numbers",
            )
    return [str(number) for number in range(max(numbers) + 1)]


def _lookup(classes: list[str]) -> dict[str, int]:
    """Label → class. A name takes precedence over a number: in classes 1, 10, 2 the label 2 is the third."""
    return {str(number): number for number in range(len(classes))} | {name: i for i, name in enumerate(classes)}


def _resolved(path: Path, number: int, text: str, classes: list[str], lookup: dict[str, int]) -> int:
    label = lookup.get(_tidy(text))
    if label is not None:
        return label
    if WHOLE_NUMBER.fullmatch(text):
        why = f"there are {len(classes)} classes, counted from 0 to {len(classes) - 1}"
        remedy = "count labels from 0, in the order of the sorted class names; or write class names"
    else:
        why = f"none of the {len(classes)} classes has this name"
        remedy = nearest(text, classes)
    raise UserError(f"{path}, line {number}: unknown label {text!r}", why=why, remedy=remedy)


def _by_file_name(
    folder: Path, images: list[bytes], label_list: Path, lines: list[tuple[int, str]], classes: list[str]
) -> list[int]:
    lookup, labels = _lookup(classes), dict[bytes, int]()
    known = set(images)
    for number, line in lines:
        name, text = _columns(label_list, number, line)
        file = os.fsencode(name)
        if file not in known:
            file = file.rpartition(b"/")[2]  # lists such as Paddle's write val/NAME
        if file not in known:
            raise UserError(
                f"{label_list}, line {number}: no file {name!r} in {folder}",
                why=f"the folder holds {len(images):,} images: {some(images, 3)}",
                remedy="a line is `file label`, or a label alone; check that list and folder belong together",
            )
        if file in labels:
            raise UserError(
                f"{label_list}, line {number}: {name!r} has a label already",
                why="an image of the validation folder has one label",
                remedy="remove one of its lines",
            )
        labels[file] = _resolved(label_list, number, text, classes, lookup)
    _refuse_other_count(folder, len(images), label_list, len(labels))
    return [labels[image] for image in images]


def _refuse_other_count(folder: Path, num_images: int, label_list: Path, num_labels: int) -> None:
    if num_images != num_labels:
        raise UserError(
            f"{label_list} has {num_labels:,} labels for the {num_images:,} images of {folder}",
            why="each image needs its label",
            remedy="check that list and folder belong together and are complete",
        )


def _refuse_missing(path: Path, root: Path, names: Names) -> None:
    """Refuse a list with missing files. Each folder is listed once, which is far less than a stat per file."""
    present: dict[bytes, set[bytes]] = {}
    missing = []
    for i in range(len(names)):
        name = names[i]
        folder = name[: name.rfind(b"/") + 1]
        if folder not in present:
            present[folder] = _entries(root / os.fsdecode(folder))
        # The check of the file itself covers what a listing does not: case-insensitive names, unlistable folders.
        if name[len(folder) :] not in present[folder] and not (root / os.fsdecode(name)).exists():
            missing.append(name)
    if missing:
        raise UserError(
            f"{path} names {len(missing):,} files that do not exist: {some(missing)}",
            why=f"paths in a list are relative to its folder, {root}",
            remedy="correct the paths, or put the list into the folder that they start from",
        )


def _entries(folder: Path) -> set[bytes]:
    try:
        return {os.fsencode(entry.name) for entry in os.scandir(folder)}
    except OSError:
        return set()


def _empty(path: Path) -> UserError:
    return UserError(f"{path} is empty", why="no line of it names a label", remedy="give one line per image")
