"""From an array of labels to classes: numbers, text, one-hot rows, or several labels a sample."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.array_files.entry import ArrayEntry, Values
from phalanx.data.sources.holdout import are_numbers
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.lists.labels import LARGEST_LABEL, WHOLE_NUMBER
from phalanx.errors import UserError


@dataclass(frozen=True)
class ArrayLabels:
    """The label of each sample, the classes, and notes for the user."""

    labels: Labels
    classes: list[str]
    notes: tuple[str, ...] = ()


def read_labels(entry: ArrayEntry, *, multi_label: bool, element: int | None) -> ArrayLabels:
    """The labels of an array; its classes are numbers, or the names in it."""
    values = _columns(entry)
    if values.dtype.kind == "U":
        found = _from_text(entry, values)
    elif values.ndim == 1:
        found = _from_numbers(entry, values)
    elif element is not None:
        found = _from_numbers(entry, _column(entry, values, element))
    else:
        return _from_rows(entry, values, multi_label)
    return _as_rows(found) if multi_label else found


def named(found: ArrayLabels, names: ArrayEntry | None) -> ArrayLabels:
    """The same with the class names of another array, where the file has one."""
    if names is None or not are_numbers(found.classes):
        return found
    texts = [str(text) for text in _columns(names).reshape(-1).tolist()]
    if len(texts) < len(found.classes) or len(set(texts)) < len(texts):
        return found
    labels = found.labels
    if labels.ndim == 2:
        labels = np.pad(labels, ((0, 0), (0, len(texts) - labels.shape[1])))
    return ArrayLabels(labels, texts, (*found.notes, f"class names: {names.name}"))


def as_known(found: ArrayLabels, known: list[str] | None, where: str) -> ArrayLabels:
    """The same with the classes of the training data or model, where these labels are just numbers."""
    if known is None or not are_numbers(found.classes) or len(found.classes) > len(known) or found.labels.ndim == 2:
        return found
    if set(found.classes).intersection(known):
        return found
    note = f"classes of {where} are matched by number: 0 is {known[0]}, and so on"
    return ArrayLabels(found.labels, known, (*found.notes, note))


def _columns(entry: ArrayEntry) -> Values:
    """The values as (n,) or (n, columns); text as str."""
    values = entry.load()
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    while values.ndim > 1 and values.shape[-1] == 1:  # (n, 1) of MedMNIST, (n, 1, 1, 1) of PatchCamelyon
        values = values[..., 0]
    if values.ndim > 2 or values.dtype.kind not in "Ubiuf":
        raise _unusable(entry, f"it is {entry}", "give a number or a name for each sample, or 0 and 1 for each class")
    return values


def _from_text(entry: ArrayEntry, values: Values) -> ArrayLabels:
    if values.ndim != 1:
        raise _unusable(entry, f"it is {entry}", "give one name for each sample")
    texts = np.char.strip(values)
    distinct, codes = np.unique(texts, return_inverse=True)
    names = distinct.tolist()
    if "" in names:
        where = int(np.flatnonzero(texts == "")[0])
        raise _unusable(entry, f"sample {where:,} has an empty one", "give every sample a name")
    if all(WHOLE_NUMBER.fullmatch(name) for name in names):
        return _from_numbers(entry, np.array([float(name) for name in names])[codes])
    return ArrayLabels(codes.astype(np.int64), names)


def _from_numbers(entry: ArrayEntry, values: Values) -> ArrayLabels:
    numbers = values.astype(np.float64) if values.dtype.kind == "f" else values
    bad = ~((numbers >= 0) & (numbers <= LARGEST_LABEL))
    if values.dtype.kind == "f":
        bad |= numbers != np.floor(numbers)
    if np.any(bad):
        where = int(np.flatnonzero(bad)[0])
        raise _unusable(
            entry,
            f"{int(bad.sum()):,} of {len(values):,} are not class numbers, first {values[where]} of sample {where:,}",
            f"labels count from 0 to at most {LARGEST_LABEL:,}: correct them, or name others with data.label_field",
        )
    labels: Labels = values.astype(np.int64)
    notes = []
    if len(labels) and int(labels.min()) > 0:
        notes.append(f"{entry.name}: labels begin at {labels.min()}, so the classes below it have no images")
    return ArrayLabels(labels, _digits(int(labels.max(initial=-1)) + 1), tuple(notes))


def _from_rows(entry: ArrayEntry, values: Values, multi_label: bool) -> ArrayLabels:
    """Labels (n, classes): one-hot, or with several ones in a row."""
    count, classes = values.shape
    if not np.all((values == 0) | (values == 1)):
        raise _unusable(
            entry,
            f"each sample has {classes} values, which are not 0 or 1: {_shown(values[0])} for the first",
            "choose a column with data.label_element, counted from 0, or name other labels with data.label_field",
        )
    rows: npt.NDArray[np.int64] = values.astype(np.int64)
    ones = rows.sum(axis=1)
    if multi_label:
        return ArrayLabels(rows, _digits(classes))
    if np.all(ones == 1):
        note = f"{entry.name}: one-hot rows, so a class is the place of the 1"
        return ArrayLabels(rows.argmax(axis=1).astype(np.int64), _digits(classes), (note,))
    raise UserError(
        f"{entry.name} of {entry.file.path} has several labels a sample",
        why=f"of {count:,} samples with {classes} labels of 0 or 1, {int((ones > 1).sum()):,} have several "
        f"and {int((ones == 0).sum()):,} have none",
        remedy="train with several labels a sample: data.multi_label=true; "
        "or on one of the labels alone: data.label_element, counted from 0",
    )


def _column(entry: ArrayEntry, values: Values, element: int) -> Values:
    if element >= values.shape[1]:
        raise _unusable(
            entry, f"each sample has {values.shape[1]} values", f"set data.label_element to 0 … {values.shape[1] - 1}"
        )
    return values[:, element]


def _as_rows(found: ArrayLabels) -> ArrayLabels:
    rows = np.zeros((len(found.labels), len(found.classes)), dtype=np.int64)
    rows[np.arange(len(found.labels)), found.labels] = 1
    return ArrayLabels(rows, found.classes, found.notes)


def _digits(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _shown(row: npt.NDArray[Any]) -> str:
    return ", ".join(f"{value:g}" for value in row[:6].tolist()) + (" …" if len(row) > 6 else "")


def _unusable(entry: ArrayEntry, why: str, remedy: str) -> UserError:
    return UserError(f"the labels {entry.name} of {entry.file.path} cannot be used", why=why, remedy=remedy)
