"""Splits that a list names: in its own name, in a folder's name, or in a column (`split`, `is_valid`)."""

import re
from collections.abc import Iterable, Sequence

_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_TITLES = {"split", "splits", "set", "subset", "partition", "part", "phase", "fold", "data_set", "dataset", "usage"}
# Columns of yes and no, and the split of yes.
_YES_MEANS = {
    **dict.fromkeys(("is_valid", "is_val", "is_validation", "is_test", "is_dev"), "val"),
    **dict.fromkeys(("is_train", "is_training", "is_training_image"), "train"),
}
_YES, _NO = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def split_in_name(name: str) -> str | None:
    """The split in the name of a file or folder, in any case: `train` of `trainLabels.csv` and of `Training_Input`."""
    return next((_WORDS[word.lower()] for word in _WORD.findall(name) if word.lower() in _WORDS), None)


def split_of_cell(title: str, cell: str) -> str | None:
    """The split of a row, from its cell in the column of this title (empty without a header)."""
    cell = cell.strip().lower()
    if title in _YES_MEANS:
        yes = _YES_MEANS[title]
        return yes if cell in _YES else {"val": "train", "train": "val"}[yes] if cell in _NO else None
    return _WORDS.get(cell)


def split_column(titles: Sequence[str], columns: Iterable[int], rows: Sequence[Sequence[str]]) -> int | None:
    """The first column whose title and cells are those of a split; without titles, whose cells are."""
    for column in columns:
        title = titles[column] if titles else ""
        if titles and title not in _TITLES and title not in _YES_MEANS:
            continue
        if rows and all(split_of_cell(title, row[column]) for row in rows):
            return column
    return None
