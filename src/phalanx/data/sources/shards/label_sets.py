"""Several labels a sample in files: lists of class numbers or names, or vectors of zeros and ones."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.data.sources.labelled import multi_hot
from phalanx.data.sources.lists.labels import WHOLE_NUMBER
from phalanx.data.sources.shards.classes import BadLabel, Classes, classes_of, number_label, refuse_names, text_label
from phalanx.data.sources.shards.index import Index, Label, LabelSet
from phalanx.errors import UserError

_SEVERAL_NUMBERS = re.compile(r"\d+(?:[\s,;]+\d+)+")


def number_set(values: Sequence[float], names: Sequence[str] = (), *, are_classes: bool = False) -> LabelSet:
    """Labels that are stored as numbers: class numbers, or, unless they `are_classes`, a vector of zeros and ones.

    `names` are those of the class numbers, if there is one for each.
    """
    named = names if len(names) == len(values) else [None] * len(values)
    labels = [number_label(value, name or None) for value, name in zip(values, named, strict=True)]
    numbers = [int(value) for value in values]
    if not are_classes and len(numbers) > 1 and set(numbers) <= {0, 1}:
        return LabelSet(_ones(numbers), len(numbers), sure=sorted(numbers) != [0, 1])
    _refuse_twice(labels)
    return LabelSet(tuple(labels))


def vector_set(values: Sequence[float]) -> LabelSet:
    """Labels in a format whose lists of numbers have one place for each class."""
    if not set(values) <= {0.0, 1.0}:
        shown = ", ".join(f"{value:g}" for value in values[:8]) + (" …" if len(values) > 8 else "")
        raise BadLabel(
            f"it has {len(values)} values ({shown}), and several labels are a vector of zeros and ones",
            "write a 1 for each class that the image has and a 0 for each other one; "
            "or choose one value with data.label_element, without data.multi_label",
        )
    return LabelSet(_ones(values), len(values))


def text_set(texts: Sequence[str]) -> LabelSet:
    """Labels that are written as texts: all of them names, or all numbers."""
    labels = [text_label(text) for text in texts]
    numbers = [label.number for label in labels if label.number is not None]
    if numbers and len(numbers) == len(labels):
        return number_set(numbers)
    _refuse_twice(labels)
    return LabelSet(tuple(labels))


def any_set(value: Any, *, are_classes: bool = False) -> LabelSet:
    """The labels in a list of numbers or of names, or in a single one of these."""
    values: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    if all(isinstance(each, str) for each in values):
        return text_set(values)
    if not all(isinstance(each, (int, float)) for each in values):
        raise BadLabel(f"{str(value)[:40]!r} is not a list of numbers or of names")
    return number_set(values, are_classes=are_classes)


def written_set(text: str) -> LabelSet:
    """Labels in a text: numbers with blanks or commas between them, or names on lines or with commas between them."""
    parts = [part for part in re.split(r"[\s,;]+", text) if part]
    if not all(WHOLE_NUMBER.fullmatch(part) for part in parts):
        parts = [part.strip() for part in re.split(r"[\n,;]+", text) if part.strip()]
    return text_set(parts)


def written_label(text: str) -> Label:
    """The label in a text that has only one. Several are refused."""
    text = text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    parts = re.split(r"[\s,;]+", text) if _SEVERAL_NUMBERS.fullmatch(text) else lines
    refuse_names(parts)
    return text_label(text)


def _ones(values: Sequence[float]) -> tuple[Label, ...]:
    return tuple(Label(place) for place, value in enumerate(values) if value)


def _refuse_twice(labels: Sequence[Label]) -> None:
    twice = next((label for place, label in enumerate(labels) if label in labels[:place]), None)
    if twice is not None:
        shown = twice.name if twice.number is None else twice.number
        raise BadLabel(
            f"it has {shown} twice among {len(labels)} values, and is neither a list of classes nor a vector of zeros "
            "and ones",
            "write the numbers or names of the image's classes; or a 1 for each class that it has and a 0 for each "
            "other one",
        )


def classes_of_sets(
    what: str,
    indexes: Sequence[Index],
    *,
    given: list[str] | None = None,
    known: list[str] | None = None,
    from_one: bool = False,
) -> Classes:
    """Classes over all files of a dataset whose samples may have several labels. `classes_of` has the arguments."""
    sets = list(dict.fromkeys(_as_set(entry) for index in indexes for entry in index.table))
    width = _width(what, sets)
    listed = [each.labels if width else _class_numbers(each) for each in sets]
    _refuse_other_length(what, width, given)
    table = list(dict.fromkeys(label for labels in listed for label in labels))
    if width and Label(width - 1) not in table:
        table.append(Label(width - 1))  # a class is there even where no sample has it
    if not table:
        names = given or known or []
        return Classes(names, np.zeros((sum(map(len, indexes)), len(names)), dtype=np.int64), [])
    nothing = np.zeros(len(table))
    distinct = Index(nothing, nothing, np.arange(len(table)), nothing, list(table))  # type: ignore[arg-type]
    classes = classes_of(what, [distinct], given=given, known=known, from_one=from_one and not width)
    number_of = dict(zip(table, classes.labels.tolist(), strict=True))
    rows = multi_hot([[number_of[label] for label in labels] for labels in listed], len(classes.names))
    row_of = {each: row for row, each in enumerate(sets)}
    places = [np.array([row_of[_as_set(entry)] for entry in index.table])[index.labels] for index in indexes]
    form = f"vectors of zeros and ones for {width:,} classes" if width else "lists of classes"
    return Classes(classes.names, rows[np.concatenate(places)], [*classes.notes, f"labels of {what} are {form}"])


def _as_set(entry: Label | LabelSet) -> LabelSet:
    return entry if isinstance(entry, LabelSet) else LabelSet((entry,))


def _class_numbers(found: LabelSet) -> tuple[Label, ...]:
    """The values 0 and 1 as class numbers, where other samples show that they are none of a vector."""
    return (Label(0), Label(1)) if found.width else found.labels


def _width(what: str, sets: Sequence[LabelSet]) -> int:
    """The length of all samples' vectors of zeros and ones; 0 where labels are lists of classes."""
    widths = {each.width for each in sets if each.sure} or {each.width for each in sets}
    if len(widths) > 1 or (widths != {0} and {each.width for each in sets} != widths):
        lengths = sorted({each.width for each in sets})
        seen = " and ".join("lists of classes" if not length else f"vectors of {length}" for length in lengths[:3])
        raise UserError(
            f"{what} has labels of different kinds: {seen}",
            why="a vector of zeros and ones has one place for each class, so all are equally long",
            remedy="write all labels as such vectors, or all as lists of class numbers or names",
        )
    width = next(iter(widths), 0)
    if width and not any(each.sure for each in sets) and len(sets) == 1 and sets[0].labels == (Label(1),):
        raise UserError(
            f"every label of {what} is 0, 1",
            why="that is either both classes, or a vector for the second of two: nothing tells which",
            remedy="write the names of the classes instead of their numbers",
        )
    return width


def _refuse_other_length(what: str, width: int, given: list[str] | None) -> None:
    if width and given is not None and len(given) != width:
        raise UserError(
            f"{what} has vectors of {width:,} zeros and ones as labels",
            why=f"its list of classes names {len(given):,}",
            remedy="check that list and files belong together",
        )
