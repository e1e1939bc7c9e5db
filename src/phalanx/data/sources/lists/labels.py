"""The cells of labels: from what a row of a list says about its classes to their names or numbers."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phalanx.errors import UserError

LARGEST_LABEL = 999_999  # a label beyond it is a mistaken column, not a class
WHOLE_NUMBER = re.compile(r"(-?\d+)(?:\.0*)?")  # MXNet writes labels as 3.000000
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
SEVERAL = "data.multi_label=true"

Key = str | tuple[str, ...]  # the cell of a label, or the cells of all its columns
Where = Callable[[int], str]  # `FILE, line N` of the first row with a key
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_PLURALS = {"labels", "tags", "classes", "targets", "attributes", "attribute_ids", "finding_labels"}


@dataclass(frozen=True)
class LabelRules:
    """How labels are written, and how many of them a sample may have."""

    multi: bool = False
    element: int | None = None  # of several values: which one is the class
    one_hot: tuple[str, ...] = ()  # the classes, where each has a column of 0 and 1
    title: str = ""  # of the column, as `title_of` writes it
    chosen: bool = False  # whether the user named the column


@dataclass(frozen=True)
class LabelNames:
    """The names or numbers of classes that each key has; and all classes, if the columns name them."""

    of_key: list[list[str]]
    classes: list[str] | None = None


def zero_or_one(cell: str) -> int | None:
    """The value of a cell in the column of a class: 1, 0, or -1, which stands for 0 in some; None for anything else."""
    return _BINARY.get(cell.strip().lower())


_BINARY = {
    **dict.fromkeys(("1", "1.0", "true"), 1),
    **dict.fromkeys(("0", "0.0", "false", ""), 0),
    **dict.fromkeys(("-1", "-1.0"), -1),
}


def read_labels(keys: Sequence[Key], rules: LabelRules, where: Where) -> LabelNames:
    """The classes of each key. Without `multi` each has exactly one."""
    if rules.one_hot:
        return LabelNames(_one_hot(keys, rules, where), list(rules.one_hot))
    if any(isinstance(key, tuple) for key in keys):
        return _vectors([key if isinstance(key, tuple) else (key,) for key in keys], rules, where)
    texts = [key.strip() for key in keys if isinstance(key, str)]
    if rules.multi:
        return LabelNames([split_labels(text, separator) for separator in [_separator(texts)] for text in texts])
    if rules.element is not None:
        several = [split_labels(text, separator) for separator in [_separator(texts)] for text in texts]
        return LabelNames([[_element(names, rules.element, where, i)] for i, names in enumerate(several)])
    for i, text in enumerate(texts):
        if not text:
            raise UserError(
                f"{where(i)} has no label",
                why="each image of a classifier has a class",
                remedy="write its label or remove the line; name another column with data.label_field",
            )
    if not rules.chosen:
        _refuse_several(texts, rules.title, where)
    return LabelNames([[text] for text in texts])


def split_labels(text: str, separator: str | None) -> list[str]:
    """Several labels of one cell: `a|b`, `a;b`, `a,b`, `a b`, `[1, 2]`, `['a', 'b']`."""
    if text[:1] in ("[", "(", "{") and text[-1:] in ("]", ")", "}"):
        text = text[1:-1]
        quoted = [first or second for first, second in _QUOTED.findall(text)]
        if quoted:
            return quoted
        separator = "," if "," in text else None
    return [name for part in text.split(separator) if (name := part.strip())]


def _separator(texts: Sequence[str]) -> str | None:
    """What separates several labels in these cells; None: blanks."""
    return next(
        (mark for mark in ("|", ";", ",") if any(mark in text and text[0] not in "[({" for text in texts)), None
    )


def _element(names: Sequence[str], element: int, where: Where, i: int) -> str:
    if element < len(names):
        return names[element]
    raise UserError(
        f"{where(i)} has no label {element}, which data.label_element chooses",
        why=f"it has {len(names)}: {', '.join(names[:6])}",
        remedy="choose another one, counted from 0",
    )


def _one_hot(keys: Sequence[Key], rules: LabelRules, where: Where) -> list[list[str]]:
    values = [[zero_or_one(cell) for cell in key] for key in keys]
    found = {value for row in values for value in row}
    for i, row in enumerate(values):
        wrong = next(
            (column for column, value in enumerate(row) if value is None or (value == -1 and 0 in found)), None
        )
        if wrong is not None:
            raise UserError(
                f"{where(i)}: {keys[i][wrong]!r} in the column {rules.one_hot[wrong]!r} is not 0 or 1",
                why="each of these columns is read as a class: " + _shown(rules.one_hot),
                remedy="write 0 and 1, or name the column of labels with data.label_field",
            )
    names = [[rules.one_hot[column] for column, value in enumerate(row) if value == 1] for row in values]
    for i, classes in enumerate(names):
        if len(classes) != 1 and not rules.multi:
            raise UserError(
                f"{where(i)} has {_shown(classes) if classes else 'no class'}",
                why=f"the columns {_shown(rules.one_hot)} are classes, and a classifier's image has exactly one",
                remedy=f"{SEVERAL} for several classes an image, or none; or correct the row",
            )
    return names


def _vectors(keys: list[tuple[str, ...]], rules: LabelRules, where: Where) -> LabelNames:
    """MXNet's labels: one number, or several. With `multi`: 0 or 1 for each class, or class numbers."""
    tidy = [[cell.strip() for cell in key] for key in keys]
    if rules.element is not None:
        return LabelNames([[_element(key, rules.element, where, i)] for i, key in enumerate(tidy)])
    widths = {len(key) for key in tidy}
    if rules.multi:
        if len(widths) == 1 and max(widths) > 1 and all(zero_or_one(cell) in (0, 1) for key in tidy for cell in key):
            classes = [str(number) for number in range(max(widths))]
            return LabelNames([[str(at) for at, cell in enumerate(key) if zero_or_one(cell)] for key in tidy], classes)
        return LabelNames(tidy)
    for i, key in enumerate(tidy):
        if len(key) != 1:
            raise UserError(
                f"{where(i)} does not name one file and one label",
                why=f"it has {len(key)} labels (an MXNet list for detection?), and a classifier's image has one",
                remedy=f"choose one with data.label_element, counted from 0; or {SEVERAL} for several an image",
            )
    return LabelNames(tidy)


def _refuse_several(texts: list[str], title: str, where: Where) -> None:
    """Refuse cells that are clearly several labels: as one name, each combination would become a class."""
    separator = _separator(texts)
    several = [split_labels(text, separator) for text in texts]
    counts = Counter(name for names in several for name in set(names))
    at = next((i for i, names in enumerate(several) if len(names) > 1), None)
    if at is None:
        return
    in_brackets = texts[at][0] in "[({"
    numbers = all(WHOLE_NUMBER.fullmatch(name) for name in counts)
    shared = any(counts[name] > 1 for names in several if len(names) > 1 for name in names)
    if separator in ("|", ";") or in_brackets:
        clearly = in_brackets or shared
    else:
        clearly = numbers or (title in _PLURALS and len(counts) < len(several))
    if clearly:
        raise UserError(
            f"{where(at)} has {len(several[at])} labels: {texts[at][:80]!r}",
            why="a classifier's image has one class",
            remedy=f"{SEVERAL} to train with several labels an image; data.label_element chooses one of them; "
            "data.label_field=COLUMN takes each text as the name of a class",
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" … ({len(names):,} in all)" if len(names) > 6 else "")
