"""Images directly in a folder, such as ImageNet's validation, with a list of their labels."""

import os
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import FileSource, Names, file_source, look, some
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.lists.classes import lookup_of, sample_labels
from phalanx.data.sources.lists.columns import empty_list
from phalanx.data.sources.lists.labels import LabelRules
from phalanx.data.sources.lists.rows import LINES, WHOLE_LINES, Rows, find_rows
from phalanx.data.sources.lists.table import Table, read_table
from phalanx.errors import UserError


def open_flat_folder(
    folder: Path,
    label_list: Path,
    classes: list[str],
    *,
    channels: int | None,
    pool: Executor | None,
    config: DataConfig | None = None,
) -> FileSource:
    """Images directly in a folder; a list has lines `file label`, the same as a table, or a label per line.

    A label is a class name or its number. Where each line is a label alone, they follow the sorted file names.
    """
    config = DataConfig() if config is None else config
    images = look(folder).images
    alone = _labels_alone(find_rows(label_list), len(images), classes)
    if alone is None:
        table = read_table(label_list, config.model_copy(update={"root": folder}), flat=True)
        labels = _by_file_name(folder, images, table, classes, config)
    else:
        rules = LabelRules(config.multi_label, config.label_element, chosen=True)
        labels = sample_labels(alone.texts, np.arange(len(alone.texts)), rules, classes, alone.where).labels
        _refuse_other_count(folder, len(images), label_list, len(labels))
    return file_source(
        f"flat folder {folder} labelled by {label_list}",
        folder,
        Names(images),
        labels,
        classes,
        channels=channels,
        pool=pool,
        label_list=label_list,
    )


@dataclass(frozen=True)
class _Alone:
    """A list of labels alone, without its header."""

    rows: Rows
    texts: list[str]
    num_titles: int

    def where(self, i: int) -> str:
        return self.rows.where(i + self.num_titles)


def _labels_alone(rows: Rows, num_images: int, classes: list[str]) -> _Alone | None:
    """The labels of a list that has nothing else; None if it names files."""
    lookup, first = lookup_of(classes), rows.first()
    if not first:
        raise empty_list(rows.path)
    if rows.separator in (LINES, WHOLE_LINES):  # a class name may contain blanks
        rows = Rows(rows.path, WHOLE_LINES, rows.encoding)
        line = rows.first()[0][0]
        if len(line.split()) > 1 and line not in lookup:
            return None
    elif len(first[0]) > 1:
        return None
    texts = [row[0].strip() for chunk in rows.chunks() for row in chunk]
    num_titles = int(len(texts) == num_images + 1 and texts[0] not in lookup)
    return _Alone(rows, texts[num_titles:], num_titles)


def _by_file_name(folder: Path, images: list[bytes], table: Table, classes: list[str], config: DataConfig) -> Labels:
    if len(table.missing):
        row = int(table.missing[0])
        raise UserError(
            f"{table.where(row)}: no file {os.fsdecode(table.names[row])!r} in {folder}",
            why=f"the folder holds {len(images):,} images: {some(images, 3)}",
            remedy="a line is `file label`, or a label alone; check that list and folder belong together",
        )
    row_of: dict[bytes, int] = {}
    for row, name in enumerate(table.names):
        if row_of.setdefault(name, row) != row:
            raise UserError(
                f"{table.where(row)}: {os.fsdecode(name)!r} has a label already",
                why="an image of the validation folder has one label",
                remedy="remove one of its lines",
            )
    labels = table.labels(table.all_rows, table.all_rows, classes, config).labels
    _refuse_other_count(folder, len(images), table.path, len(labels))
    return labels[[row_of[image] for image in images]]


def _refuse_other_count(folder: Path, num_images: int, label_list: Path, num_labels: int) -> None:
    if num_images != num_labels:
        raise UserError(
            f"{label_list} has {num_labels:,} labels for the {num_images:,} images of {folder}",
            why="each image needs its label",
            remedy="check that list and folder belong together and are complete",
        )
