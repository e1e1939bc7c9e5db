"""The validation list beside a training list: val.csv of train.csv, if it has labels."""

import os
import re
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.sources.lists.columns import Columns, find_columns
from phalanx.data.sources.lists.rows import find_rows
from phalanx.data.sources.splits import WORDS

_VAL_NAMES = [word for split in ("val", "test") for word in WORDS if WORDS[word] == split]
_TRAIN = re.compile(r"training|train", re.IGNORECASE)


def find_val_list(path: Path, config: DataConfig) -> tuple[Path | None, tuple[str, ...]]:
    """(the validation list beside a training list, if there is one; notes). Kaggle's test.csv has no labels."""
    if not _TRAIN.search(path.name):
        return None, ()
    try:
        beside = {entry.name.lower(): entry.name for entry in os.scandir(path.parent) if entry.is_file()}
    except OSError:
        return None, ()
    columns: Columns | None = None
    notes: tuple[str, ...] = ()
    for word in _VAL_NAMES:
        name = beside.get(_TRAIN.sub(word, path.name).lower())
        if name is None:
            continue
        columns = columns or find_columns(find_rows(path), config)[1]
        if _has_labels(path.with_name(name), columns):
            return path.with_name(name), (*notes, f"validation: {path.with_name(name)}, found beside {path.name}")
        notes = (*notes, f"{path.with_name(name)} has no labels: it is not used for validation")
    return None, notes


def _has_labels(path: Path, columns: Columns) -> bool:
    """Whether a list has the columns of labels that the training list has."""
    first = find_rows(path).first()
    titles = [cell.strip() for cell in first[0]] if first else []
    wanted = {columns.title(column) for column in columns.labels}
    if columns.titles and set(columns.titles).intersection(titles):
        return wanted.issubset(titles)
    return len(titles) == columns.width or not columns.labels
