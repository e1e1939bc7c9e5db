"""Lists of image files with their labels: lines `path label`, MXNet's `.lst`, and tables (CSV, TSV)."""

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices
from phalanx.data.sources.folders import FileSource, file_source
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.lists.columns import find_columns
from phalanx.data.sources.lists.duplicates import without_repeated
from phalanx.data.sources.lists.groups import groups_in
from phalanx.data.sources.lists.missing import without_missing
from phalanx.data.sources.lists.notes import about_columns, about_place
from phalanx.data.sources.lists.rows import find_rows
from phalanx.data.sources.lists.table import ListSplits, Table, read_table
from phalanx.errors import UserError


def open_list(
    path: Path,
    classes: list[str] | None,
    *,
    channels: int | None,
    pool: Executor | None,
    config: DataConfig | None = None,
    root: Path | None = None,
    part: Part | None = None,
) -> FileSource:
    """A list of files, relative to data.root, to `root`, to the list's folder, or to the folder where they are found.

    Where `classes` are known, labels are their names or numbers; otherwise the labels make the classes. `part` chooses
    the rows of one split, if the list has a column of splits; otherwise it has no effect.
    """
    config = DataConfig() if config is None else config
    table = read_table(path, _with_root(path, config, root))
    return _source(_Opening(table, table.splits(), part), classes, config, channels, pool)


def open_list_val(
    path: Path, classes: list[str] | None, *, channels: int | None, pool: Executor | None, config: DataConfig
) -> FileSource | None:
    """The validation part of a list, if a column of it says which rows that is."""
    if find_columns(find_rows(path), config)[1].split is None:
        return None
    table = read_table(path, config)
    splits = table.splits()
    return None if splits is None else _source(_Opening(table, splits, "val"), classes, config, channels, pool)


def _with_root(path: Path, config: DataConfig, root: Path | None) -> DataConfig:
    """The settings with a root that is only likely: it counts where it has files of the list."""
    if root is None or root == path.parent or config.root is not None:
        return config
    likely = config.model_copy(update={"root": root})
    return likely if find_columns(find_rows(path), likely)[1].place.found else config


@dataclass(frozen=True)
class _Opening:
    """A list that was read, its splits, and the one that is wanted."""

    table: Table
    splits: ListSplits | None
    part: Part | None

    @property
    def wanted(self) -> Indices:
        return self.table.all_rows if self.splits is None or self.part is None else self.splits.rows[self.part]

    @property
    def used(self) -> Indices:
        return self.table.all_rows if self.splits is None else self.splits.used

    @property
    def notes(self) -> tuple[str, ...]:
        return self.splits.notes if self.splits is not None and self.part == "train" else ()


def _source(
    opening: _Opening, classes: list[str] | None, config: DataConfig, channels: int | None, pool: Executor | None
) -> FileSource:
    table = opening.table
    kept, missing = without_missing(table, opening.wanted, config)
    found = table.labels(kept, opening.used, classes, config)
    if classes is None:
        _refuse_names_of_images(table, found.classes)
    files = table.names if len(kept) == len(table.names) else table.names.chosen(kept.tolist())
    files, labels, repeated = without_repeated(files, table.hashes[kept], found.labels, found.classes)
    where = (*about_columns(table, len(found.classes)), *about_place(table, config))
    source = file_source(
        f"list {table.path}",
        table.columns.place.root,
        files,
        labels,
        found.classes,
        channels=channels,
        pool=pool,
        label_list=table.path,
        notes=(*where, *found.notes, *opening.notes, *repeated, *missing.notes),
    )
    groups = None if config.group_field is None else groups_in(table, files, config.group_field)
    return replace(source, left_out=missing.files, groups=groups)


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
