"""Names of classes that are only numbers in the data: from data.class_names, or from a file beside the data."""

import fnmatch
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.holdout import are_numbers
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.name_files import NameFile, NoNames, read_names
from phalanx.errors import UserError

# Looked for beside the data, in this order.
USUAL_FILES = (
    *("class_names.txt", "classes.txt", "labels.txt", "label_names.txt", "label_list.txt", "*_label_list.txt"),
    *("class_to_idx.json", "idx_to_class.json", "class_names.json", "classes.json", "labels.json"),
    *("label_map.json", "label_num_to_*_map.json", "imagenet_class_index.json"),
)


@dataclass(frozen=True)
class Naming:
    """Names of classes, the number of each former class among them, and notes for the user."""

    classes: list[str]
    number: list[int]
    notes: tuple[str, ...] = ()

    def of(self, source: Labelled) -> Labelled:
        """The source with these names. It has the former classes."""
        new = np.array(self.number, dtype=np.int64)
        if not source.multi_label:
            return replace(source, classes=self.classes, labels=new[source.labels])
        labels = np.zeros((len(source), len(self.classes)), dtype=np.int64)
        labels[:, new] = source.labels
        return replace(source, classes=self.classes, labels=labels)


def find_naming(train: Labelled, config: DataConfig, places: Iterable[Path]) -> Naming:
    """The names of the classes of training data: as the user says, as a file beside it says, or as they are."""
    classes = train.classes
    if config.class_names is not None:
        return _as_told(classes, config.class_names)
    same = Naming(classes, list(range(len(classes))))
    if not are_numbers(classes):
        return same
    names, notes = _found(classes, places)
    return replace(same, classes=names or _names_of_folders(train) or classes, notes=tuple(notes))


def _as_told(classes: list[str], given: list[str] | Path) -> Naming:
    told, names = _told(given)
    same = list(range(len(classes)))
    keyed = [names.by_key.get(name) for name in classes]
    if names.by_number is not None and _are_numbers_in_any_order(classes):
        return _by_number(classes, told, names.by_number)
    if names.by_key and None not in keyed:  # by the names of folders, such as 21 or n01440764
        return Naming([str(name) for name in keyed], same, (f"class names: {told}, {classes[0]} is {keyed[0]} …",))
    unknown = [name for name in classes if name not in (names.by_number or [])]
    if names.by_number is None or unknown:
        raise UserError(
            f"{told} does not name the classes of the data",
            why=f"the data has {_some(classes)}, and it has {_some(names.by_number or names.by_key)}",
            remedy="give a name for each class, in the order of their numbers, counted from 0",
        )
    return Naming(names.by_number, [names.by_number.index(name) for name in classes])  # the order that the user wants


def _by_number(classes: list[str], told: str, names: list[str]) -> Naming:
    if len(names) < len(classes):
        raise UserError(
            f"{told} names {len(names):,} classes, and the data has {len(classes):,}",
            why=f"its labels are numbers from 0 to {len(classes) - 1}",
            remedy="name all of them, in the order of the numbers",
        )
    notes = [f"class names: {told}, 0 is {names[0]}, and so on"]
    if len(names) > len(classes):
        notes.append(f"{told} names {len(names):,} classes, and labels of the data go up to {len(classes) - 1}")
    return Naming(names, [int(name) for name in classes], tuple(notes))


def _found(classes: list[str], places: Iterable[Path]) -> tuple[list[str] | None, list[str]]:
    """(names of numbered classes from a file in one of the places, notes for the user)."""
    notes = []
    for path, names in _name_files(places):
        if len(names) == len(classes):
            return names, [f"class names: {path}, 0 is {names[0]}, and so on"]
        notes.append(f"{path} names {len(names):,} classes and the data has {len(classes):,}, so it is not used")
    return None, notes


def _names_of_folders(source: Labelled) -> list[str] | None:
    """The folders of a list's images as names of its numbered classes, if each label has a folder of its own."""
    if not isinstance(source, FileSource) or source.label_list is None or source.multi_label:
        return None
    pairs = {(source.names[row].rpartition(b"/")[0], label) for row, label in enumerate(source.labels.tolist())}
    folder_of = {label: os.fsdecode(folder).rpartition("/")[2] for folder, label in pairs}
    names = [folder_of.get(label, str(label)) for label in range(len(source.classes))]
    alone = len(pairs) == len(folder_of) > 1 and len(set(names)) == len(names) and all(names)
    return names if alone else None


def known_in_order(places: Iterable[Path], classes: list[str]) -> list[str]:
    """Known classes in the order of a list of names beside other data: that data may number them otherwise."""
    found = (names for _, names in _name_files(places) if set(names) == set(classes))
    return next(found, classes)


def places_of(path: Path, source: Labelled | None = None) -> list[Path]:
    """Folders where files about the data may lie: at the path or beside it, and where its lists or classes are."""
    places = [path if path.is_dir() else path.parent]
    if isinstance(source, FileSource):
        places += [source.label_list.parent] if source.label_list is not None else []
        places += [folder for folder in (source.root, *source.root.parents) if path in folder.parents]
    return places


def _name_files(places: Iterable[Path]) -> Iterator[tuple[Path, list[str]]]:
    """The usual files that name classes by number."""
    for path in _usual_files(places):
        try:
            names = read_names(path).by_number
        except NoNames:  # it may be about something else
            continue
        if names is not None and not are_numbers(names):
            yield path, names


def _usual_files(places: Iterable[Path]) -> Iterator[Path]:
    for folder in dict.fromkeys(places):
        try:
            there = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
        except OSError:
            continue
        for usual in USUAL_FILES:
            yield from (folder / name for name in there if fnmatch.fnmatch(name.lower(), usual))


def _told(given: list[str] | Path) -> tuple[str, NameFile]:
    if not isinstance(given, Path):
        if len(set(given)) < len(given):
            raise UserError(
                "data.class_names has a name twice", why=f"{_some(given)}", remedy="give each class its own name"
            )
        return "data.class_names", NameFile(list(given), {})
    try:
        return str(given), read_names(given.expanduser())
    except NoNames as error:
        raise UserError(
            f"{given} gives no class names (data.class_names)",
            why=str(error),
            remedy="give a file with a name per line, `0 name` lines, or a JSON list or map of names and numbers",
        ) from error


def _are_numbers_in_any_order(classes: list[str]) -> bool:
    """Folders 0, 1, 10, 2 are numbers, too."""
    return set(classes) == {str(number) for number in range(len(classes))}


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
