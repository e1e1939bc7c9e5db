"""Classes of a list: from the names or numbers in its labels to classes, and to a class number of each."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.lists.labels import LARGEST_LABEL, NUMBER, WHOLE_NUMBER, Key, LabelRules, Where, read_labels
from phalanx.errors import UserError, nearest

LONGEST_NAME = 200
_MANY = 10_000  # numbers beyond it, most of which do not occur, are identifiers


@dataclass(frozen=True)
class ListClasses:
    """The classes of a list, and notes for the user."""

    names: list[str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListLabels:
    """The classes of a list, the labels of its samples, and notes for the user."""

    classes: list[str]
    labels: Labels
    notes: tuple[str, ...] = ()


def sample_labels(
    keys: Sequence[Key], codes: npt.NDArray[np.int64], rules: LabelRules, classes: list[str] | None, where: Where
) -> ListLabels:
    """The labels of samples, whose codes number the keys. Without known classes, the labels of all keys make them."""
    written = read_labels(keys, rules, where)
    notes: tuple[str, ...] = ()
    if classes is None:
        classes = written.classes
    if classes is None:
        found = classes_of(written.of_key, where, titled=bool(rules.title))
        classes, notes = found.names, found.notes
    numbers = class_numbers(written.of_key, classes, where)
    return ListLabels(classes, spread(numbers, codes, len(classes), multi=rules.multi), notes)


def tidy(text: str) -> str:
    """A label as a class name: 3.000000 is 3."""
    number = WHOLE_NUMBER.fullmatch(text)
    return str(int(number[1])) if number and len(text) < LONGEST_NAME else text


def classes_of(labels: Sequence[Sequence[str]], where: Where, *, titled: bool) -> ListClasses:
    """The classes of these labels: 0 … the largest number; or, if any is a name, all names in order."""
    places: dict[str, int] = {}
    for i, names in enumerate(labels):
        for name in names:
            places.setdefault(tidy(name), i)
    if not places:
        raise UserError(
            f"no row of {where(0).rpartition(', ')[0]} has a label",
            why="the column of labels is empty",
            remedy="name another column with data.label_field",
        )
    if not all(WHOLE_NUMBER.fullmatch(name) for name in places) or max(map(len, places)) > LONGEST_NAME:
        _refuse_unprintable(places, where)
        _refuse_measures(places, where)
        return ListClasses(sorted(places))
    numbers = sorted(map(int, places))
    if titled and numbers[0] >= 0 and numbers[-1] >= _MANY and 10 * len(numbers) <= numbers[-1]:
        note = f"labels are {len(numbers):,} numbers between {numbers[0]} and {numbers[-1]}, taken as names of classes"
        return ListClasses([str(number) for number in numbers], (note,))
    for wrong in (numbers[0], numbers[-1]):
        if not 0 <= wrong <= LARGEST_LABEL:
            raise UserError(
                f"{where(places[str(wrong)])} has the label {wrong}",
                why=f"a number as label is a class, counted from 0 to at most {LARGEST_LABEL:,}",
                remedy="check the columns of the list, or write class names instead of numbers",
            )
    return ListClasses([str(number) for number in range(numbers[-1] + 1)], _gaps(numbers))


def _gaps(numbers: list[int]) -> tuple[str, ...]:
    empty = numbers[-1] + 1 - len(numbers)
    if not empty:
        return ()
    if numbers[0] == 1 and empty == 1:
        return (f"labels start at 1: class 0 of {numbers[-1] + 1:,} has no images",)
    return (f"labels are {len(numbers):,} numbers up to {numbers[-1]}: {empty:,} classes have no images",)


def _refuse_measures(places: dict[str, int], where: Where) -> None:
    """Refuse numbers that are measured and not counted."""
    broken = next((name for name in places if not WHOLE_NUMBER.fullmatch(name)), "")
    if all(NUMBER.fullmatch(name) for name in places):
        raise UserError(
            f"{where(places[broken])} has the label {broken}",
            why="labels are names of classes, or whole numbers counted from 0",
            remedy="name another column with data.label_field, or write class names",
        )


def _refuse_unprintable(places: dict[str, int], where: Where) -> None:
    for name, place in places.items():
        # Cc: control characters; Cs: bytes that are not UTF-8.
        if len(name) > LONGEST_NAME or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
            raise UserError(
                f"{where(place)}: {name[:40]!r} is not a class name",
                why="it is too long, spans lines, or is not UTF-8",
                remedy="check the quotes and columns of the list, and save it as UTF-8",
            )


def lookup_of(classes: Sequence[str]) -> dict[str, int]:
    """Label → class. A name takes precedence over a number: in classes 1, 10, 2 the label 2 is the third."""
    return {str(number): number for number in range(len(classes))} | {name: i for i, name in enumerate(classes)}


def class_number(text: str, classes: list[str], lookup: dict[str, int], where: Where, i: int) -> int:
    """The class of one label. `where(i)` is its place in the list."""
    label = lookup.get(tidy(text), lookup.get(text))
    if label is not None:
        return label
    if WHOLE_NUMBER.fullmatch(text):
        why = f"there are {len(classes)} classes, counted from 0 to {len(classes) - 1}"
        remedy = "count labels from 0, in the order of the sorted class names; or write class names"
    else:
        why = f"none of the {len(classes)} classes has this name"
        remedy = nearest(text, classes)
    raise UserError(f"{where(i)}: unknown label {text[:LONGEST_NAME]!r}", why=why, remedy=remedy)


def class_numbers(labels: Sequence[Sequence[str]], classes: list[str], where: Where) -> list[list[int]]:
    """The classes of each list of labels."""
    lookup = lookup_of(classes)
    return [[class_number(name, classes, lookup, where, i) for name in names] for i, names in enumerate(labels)]


def spread(numbers: Sequence[Sequence[int]], codes: npt.NDArray[np.int64], num_classes: int, *, multi: bool) -> Labels:
    """Labels of samples, each with the numbers at its code: (n,) of one number each, or multi-hot (n, classes)."""
    if not multi:
        first: Labels = np.array([row[0] for row in numbers], dtype=np.int64)[codes]
        return first
    lengths = np.array([len(row) for row in numbers], dtype=np.int64)
    flat = np.array([number for row in numbers for number in row], dtype=np.int64)
    counts = lengths[codes]
    starts = (np.cumsum(lengths) - lengths)[codes]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    out: Labels = np.zeros((len(codes), num_classes), dtype=np.int64)
    out[np.repeat(np.arange(len(codes)), counts), flat[np.repeat(starts, counts) + within]] = 1
    return out
