"""From labels in files (numbers, names, or both) to the classes of a dataset and a class number per sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.data.sources.holdout import are_numbers
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.lists.labels import LARGEST_LABEL, WHOLE_NUMBER
from phalanx.data.sources.shards.index import AnyLabel, Index, Label
from phalanx.errors import UserError


class BadLabel(Exception):
    """A label that cannot be used, and why. Callers that know the sample's name turn it into a UserError, with `of`."""

    def __init__(self, why: str, remedy: str = "") -> None:
        self.why, self.remedy = why, remedy or "labels are class names, or numbers counted from 0: correct the data"
        super().__init__(why)

    def of(self, sample: str) -> UserError:
        return UserError(f"the label of {sample} cannot be used", why=self.why, remedy=self.remedy)


def number_label(value: float, name: str | None = None) -> Label:
    """A label that is stored as a number."""
    if not math.isfinite(value) or value != int(value):
        raise BadLabel(f"{value:g} is not a whole number")
    if not 0 <= value <= LARGEST_LABEL:
        raise BadLabel(f"{int(value)} is not between 0 and {LARGEST_LABEL:,}")
    return Label(int(value), name)


def text_label(text: str) -> Label:
    """A label that is written as text: a number or a class name."""
    text = text.strip()
    if not text:
        raise BadLabel("it is empty")
    if WHOLE_NUMBER.fullmatch(text):
        return number_label(float(text))
    if len(text) > 200 or not text.isprintable():
        raise BadLabel(f"{text[:40]!r}… is not a class name")
    return Label(None, text)


def one_of(values: Sequence[float], element: int | None) -> float:
    """The value of a label that may have several: the only one, or the element that the user chose."""
    if element is None and len(values) == 1:
        return values[0]
    if element is not None and element < len(values):
        return values[element]
    shown = ", ".join(f"{value:g}" for value in values[:6]) + (" …" if len(values) > 6 else "")
    raise BadLabel(
        f"it has {len(values)} values ({shown or 'none'}), and a classifier's image has one class",
        "choose one of the values with data.label_element, counted from 0; or use all: data.multi_label=true",
    )


def one_hot_class(values: Sequence[float]) -> int | None:
    """The class of a label that is a list with a one for it and a zero for each other; None if it is something else."""
    if len(values) < 2 or sum(value != 0 for value in values) != 1 or max(values) != 1:
        return None
    return values.index(1)


def not_one_hot(values: Sequence[float], length: int) -> tuple[str, str]:
    """Why a label among one-hot ones cannot be used, and what to do."""
    shown = ", ".join(f"{value:g}" for value in values[:6]) + (" …" if len(values) > 6 else "")
    return (
        f"it is ({shown or 'nothing'}), and the first labels are lists of {length} numbers with a single one",
        "give each image one class; or, if it may have several, set data.multi_label=true",
    )


def refuse_names(names: Sequence[str]) -> None:
    """Refuse several texts as one label."""
    if len(names) > 1:
        shown = ", ".join(name[:40] for name in names[:6]) + (" …" if len(names) > 6 else "")
        raise BadLabel(
            f"it has {len(names)} labels ({shown}), and a classifier's image has one class",
            "use all of them: data.multi_label=true",
        )


@dataclass
class Classes:
    """The classes of a dataset, the label of each sample, and notes for the user."""

    names: list[str]
    labels: Labels
    notes: list[str]


def classes_of(
    what: str,
    indexes: Sequence[Index],
    *,
    given: list[str] | None = None,
    known: list[str] | None = None,
    from_one: bool = False,
) -> Classes:
    """Classes over all files of a dataset.

    `given` has the class names by number, if the format has such a list. `known` are the classes of the training data
    or model: labels that are only numbers count in them. With `from_one`, classes begin at 1 if no label is 0.
    """
    table = dict.fromkeys(_only(label) for index in indexes for label in index.table)
    numbers = [label.number for label in table if label.number is not None]
    if numbers and len(numbers) < len(table):
        name = next(label.name for label in table if label.number is None)
        raise UserError(
            f"{what} has numbers and names as labels: {numbers[0]} and {name!r}",
            why="their order as classes would be a guess",
            remedy="write all labels as numbers, counted from 0, or all as names",
        )
    if not numbers:
        names = sorted({str(label.name) for label in table})
        place = {name: i for i, name in enumerate(names)}
        return Classes(names, _labels(indexes, {label: place[str(label.name)] for label in table}), [])
    first = 1 if from_one and given is None and min(numbers) >= 1 else 0
    names, notes = _names_of_numbers(what, list(table), first, given)
    if first:
        notes.append(f"{what}: labels start at 1 (0 is TF-Slim's background), so class 1 is the first of {len(names)}")
    elif given is None and known is not None and _can_be_known(names, known):
        notes.append(f"classes of {what} are matched by number: 0 is {known[0]}, and so on")
        names = known
    return Classes(names, _labels(indexes, {label: _number(label) - first for label in table}), notes)


def _names_of_numbers(
    what: str, table: list[Label], first: int, given: list[str] | None
) -> tuple[list[str], list[str]]:
    """(class names of the numbers from `first` on, notes): the given ones, those in the labels, or digits."""
    largest = max(_number(label) for label in table)
    if given is not None:
        if largest >= len(given):
            raise UserError(
                f"{what} has the label {largest}",
                why=f"its list of classes names {len(given):,}, counted from 0",
                remedy="check that list and files belong together",
            )
        return given, []
    digits = [str(number) for number in range(first, largest + 1)]
    if any(label.name is None for label in table):
        return digits, []
    pairs = {(_number(label), str(label.name)) for label in table}
    named = dict(pairs)
    names = [named.get(number, digit) for number, digit in enumerate(digits, start=first)]
    if len(pairs) == len(named) and len(names) == len(set(names)):
        return names, []
    return digits, [f"{what}: names and numbers of labels do not match one to one, so numbers are used"]


def _labels(indexes: Sequence[Index], number_of: dict[Label, int]) -> Labels:
    tables = [np.array([number_of[_only(label)] for label in index.table], dtype=np.int64) for index in indexes]
    mapped = [numbers[index.labels] for numbers, index in zip(tables, indexes, strict=True)]
    labels: Labels = np.concatenate(mapped)
    return labels


def _only(label: AnyLabel) -> Label:
    assert isinstance(label, Label)
    return label


def _number(label: Label) -> int:
    assert label.number is not None
    return label.number


def _can_be_known(names: list[str], known: list[str]) -> bool:
    """Whether classes with numbers only can be the known ones, which have names only."""
    return are_numbers(names) and len(names) <= len(known) and not set(names).intersection(known)
