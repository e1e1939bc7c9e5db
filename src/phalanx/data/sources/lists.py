"""Lists of image files with their labels: lines `path label`, MXNet's `.lst`, and tables (CSV, TSV)."""

from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import FileSource, file_source
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.list_columns import find_columns
from phalanx.data.sources.list_duplicates import without_repeated
from phalanx.data.sources.list_missing import without_missing
from phalanx.data.sources.list_notes import about_columns, about_place
from phalanx.data.sources.list_rows import find_rows
from phalanx.data.sources.list_table import Table, read_table
from phalanx.errors import UserError


def open_list(
    path: Path,
    classes: list[str] | None,
    *,
    channels: int | None,
    pool: Executor | None,
    config: DataConfig | None = None,
    part: Part | None = None,
) -> FileSource:
    """A list of files, relative to data.root, to the list's folder, or to the folder where they are found.

    Where `classes` are known, labels are their names or numbers; otherwise the labels make the classes. `part` chooses
    the rows of one split, if the list has a column of splits; otherwise it has no effect.
    """
    config = DataConfig() if config is None else config
    table = read_table(path, config)
    splits = table.splits()
    rows = table.all_rows if splits is None or part is None else splits.rows[part]
    kept, missing = without_missing(table, rows, config)
    found = table.labels(kept, table.all_rows if splits is None else splits.used, classes, config)
    if classes is None:
        _refuse_names_of_images(table, found.classes)
    files = table.names if len(kept) == len(table.names) else table.names.chosen(kept.tolist())
    files, labels, repeated = without_repeated(files, table.hashes[kept], found.labels, found.classes)
    source = file_source(
        f"list {path}",
        table.columns.place.root,
        files,
        labels,
        found.classes,
        channels=channels,
        pool=pool,
        label_list=path,
        notes=(
            *about_columns(table, len(found.classes)),
            *about_place(table, config),
            *found.notes,
            *(splits.notes if splits is not None and part == "train" else ()),
            *repeated,
            *missing.notes,
        ),
    )
    return replace(source, left_out=missing.files)


def open_list_val(
    path: Path, classes: list[str] | None, *, channels: int | None, pool: Executor | None, config: DataConfig
) -> FileSource | None:
    """The validation part of a list, if a column of it says which rows that is."""
    columns = find_columns(find_rows(path), config)[1]
    if columns.split is None or read_table(path, config).splits() is None:
        return None
    return open_list(path, classes, channels=channels, pool=pool, config=config, part="val")


def _refuse_names_of_images(table: Table, classes: list[str]) -> None:
    """Refuse a table in which each row has a label of its own: it is another column."""
    columns = table.columns
    if len(classes) < max(len(table.names), 20) or not columns.titles or columns.chosen or len(columns.labels) > 1:
        return
    titles = [title for title in columns.titles if title and title != columns.title(columns.image)]
    raise UserError(
        f"each of the {len(table.names):,} rows of {table.path} has a label of its own: {', '.join(classes[:3])} …",
        why=f"the column {columns.title(columns.labels[0])!r} is taken for the label; a class has several images",
        remedy=f"name the label's column with data.label_field; there are {', '.join(titles[:8])}",
    )
