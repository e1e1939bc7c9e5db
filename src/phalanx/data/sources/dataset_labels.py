"""Several labels a sample of a user's dataset: vectors of zeros and ones, or lists of class numbers or names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.data.sources.labelled import Labels, multi_hot
from phalanx.errors import UserError


def label_sets(stored: Sequence[Any], names: list[str] | None, where: str) -> tuple[list[str], Labels, str]:
    """(classes, labels (n, classes), a note that says how they were read). `names` are those of the classes."""
    rows = [_as_list(value, number, where) for number, value in enumerate(stored)]
    width = _width(rows, stored, where)
    if width:
        classes = _digits(width) if names is None else names
        if len(classes) != width:
            raise UserError(
                f"{where} has vectors of {width:,} zeros and ones as labels",
                why=f"it has {len(classes):,} classes",
                remedy="give it one class for each place of the vectors",
            )
        labels: Labels = np.array(rows, dtype=np.int64)
        return classes, labels, f"labels of {where} are vectors of zeros and ones for {width:,} classes"
    classes = _classes(rows, names)
    number_of: dict[Any, int] = {name: number for number, name in enumerate(classes)}
    if names is not None or classes == _digits(len(classes)):
        number_of |= {number: number for number in range(len(classes))}
    for number, row in enumerate(rows):
        strange = next((value for value in row if value not in number_of), None)
        if strange is not None:
            raise UserError(
                f"sample {number:,} of {where} has the label {strange!r:.60}",
                why=f"it has {len(classes):,} classes: {', '.join(classes[:5])}{' …' if len(classes) > 5 else ''}",
                remedy="give each sample a vector of zeros and ones, or a list of numbers or names of its classes",
            )
    labels = multi_hot([[number_of[value] for value in row] for row in rows], len(classes))
    return classes, labels, f"labels of {where} are lists of classes"


def _as_list(value: Any, number: int, where: str) -> list[Any]:
    """A sample's labels: whole numbers as integers, names as text."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    values = list(plain) if isinstance(plain, list | tuple | set | frozenset) else [plain]
    whole = [int(each) if isinstance(each, bool | float) and each == int(each) else each for each in values]
    if not (all(isinstance(each, str) for each in whole) or all(isinstance(each, int) for each in whole)):
        raise UserError(
            f"the label of sample {number:,} of {where} cannot be used",
            why=f"it is {value!r:.100}",
            remedy="return a vector of zeros and ones, or a list of numbers or names of classes",
        )
    return whole


def _width(rows: list[list[Any]], stored: Sequence[Any], where: str) -> int:
    """The length of the vectors, if labels are vectors of zeros and ones: equally long, without any other number."""
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or (lengths <= {0, 1} and not _is_array(stored)) or any(set(row) - {0, 1} for row in rows):
        return 0
    if not _is_array(stored) and all(row == [0, 1] for row in rows):
        raise UserError(
            f"every label of {where} is 0, 1",
            why="that is either both classes, or a vector for the second of two: nothing tells which",
            remedy="return arrays or tensors of zeros and ones, or names of classes",
        )
    return lengths.pop()


def _is_array(stored: Sequence[Any]) -> bool:
    """Whether labels are arrays or tensors of one dimension, which nobody writes lists of classes in."""
    return all(getattr(value, "ndim", 0) == 1 for value in stored)


def _classes(rows: list[list[Any]], names: list[str] | None) -> list[str]:
    if names is not None:
        return names
    texts = sorted({value for row in rows for value in row if isinstance(value, str)})
    return texts or _digits(1 + max((value for row in rows for value in row), default=-1))


def _digits(count: int) -> list[str]:
    return [str(number) for number in range(count)]
