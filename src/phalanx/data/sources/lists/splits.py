"""The column of a list that names splits (`split`, `is_valid`)."""

from collections.abc import Iterable, Sequence

from phalanx.data.sources.splits import WORDS

_TITLES = {"split", "splits", "set", "subset", "partition", "part", "phase", "fold", "data_set", "dataset", "usage"}
# Columns of yes and no, and the split of yes.
_YES_MEANS = {
    **dict.fromkeys(("is_valid", "is_val", "is_validation", "is_test", "is_dev"), "val"),
    **dict.fromkeys(("is_train", "is_training", "is_training_image"), "train"),
}
_YES, _NO = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}


def split_of_cell(title: str, cell: str) -> str | None:
    """The split of a row, from its cell in the column of this title (empty without a header)."""
    cell = cell.strip().lower()
    if title in _YES_MEANS:
        yes = _YES_MEANS[title]
        return yes if cell in _YES else {"val": "train", "train": "val"}[yes] if cell in _NO else None
    return WORDS.get(cell)


def split_column(titles: Sequence[str], columns: Iterable[int], rows: Sequence[Sequence[str]]) -> int | None:
    """The first column whose title and cells are those of a split; without titles, whose cells are."""
    for column in columns:
        title = titles[column] if titles else ""
        if titles and title not in _TITLES and title not in _YES_MEANS:
            continue
        if rows and all(split_of_cell(title, row[column]) for row in rows):
            return column
    return None
