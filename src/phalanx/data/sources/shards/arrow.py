"""Images in Arrow files: the offsets of each row's bytes in the file.

pyarrow reads the tables once; after that, images are read at their offsets, as in every other format.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.data.base import Pixels
from phalanx.data.sources.find_layout import Layout
from phalanx.data.sources.shards.arrow_columns import BY_PATH, Column, locate, mapped, record_batches, whole_file
from phalanx.data.sources.shards.classes import (
    BadLabel,
    not_one_hot,
    number_label,
    one_hot_class,
    one_of,
    refuse_names,
    text_label,
)
from phalanx.data.sources.shards.index import AnyLabel, IndexBuilder
from phalanx.data.sources.shards.indexing import Reader, Shard
from phalanx.data.sources.shards.label_sets import any_set
from phalanx.data.sources.shards.tables import described, pyarrow_for
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError

UNLABELLED = "-1 often marks rows whose label is kept secret: use another split, or name validation data with data.val"


@dataclass(frozen=True)
class ArrowReader(Reader):
    """Rows of Arrow files: a column with images, and one with labels."""

    image_column: str
    label_column: str
    label_element: int | None
    one_hot: int = 0  # the length of labels that are a one among zeros; 0: they are numbers or names
    layout: Layout | None = None  # None: images are compressed
    root: Path = Path()  # where relative paths of images begin
    multi_label: bool = False
    are_classes: bool = False  # whether the column's type says that its numbers are class numbers

    @property
    def fingerprint(self) -> str:
        columns = f"image={self.image_column!r} label={self.label_column!r}"
        several = f"multi_label classes={self.are_classes}"
        labels = several if self.multi_label else f"label_element={self.label_element} one_hot={self.one_hot}"
        return f"arrow {columns} {labels}"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        arrow = pyarrow_for(window.path)
        whole = mapped(arrow, window.descriptor, window.path)
        row, without_image = 0, 0
        for labels, found in self._batches(arrow, whole, window.path):
            for label, (offset, length, mark) in zip(labels, found.places.tolist(), strict=True):
                if length:
                    builder.add(offset, length, self._label(window.path, row, label), mark)
                without_image += not length
                row += 1
        if without_image:
            builder.notes.append(f"{without_image:,} rows without an image are left out")

    def _batches(self, arrow: Any, whole: Any, path: Path) -> Iterator[tuple[list[Any], Column]]:
        """(labels, positions of the images) batch by batch."""
        offset = 0
        try:
            for batch in record_batches(arrow, whole):
                images = column_of(batch, self.image_column, path)
                labels = column_of(batch, self.label_column, path).to_pylist()
                found = locate(arrow, images, whole, path)
                yield labels, found
                offset = max([offset, *(found.places[:, 0] + found.places[:, 1]).tolist()])
        except (UserError, Damaged):
            raise
        except Exception as error:  # a damaged file raises all kinds of exceptions in pyarrow
            raise Damaged(offset, f"from here on it is not an Arrow file: {str(error)[:200]}") from error

    def _label(self, path: Path, row: int, value: Any) -> AnyLabel:
        try:
            if self.multi_label:
                return any_set(value, are_classes=self.are_classes)
            if isinstance(value, str):
                return text_label(value)
            values = value if isinstance(value, list) else [value]
            refuse_names(values if all(isinstance(name, str) for name in values) else [])
            if not all(isinstance(number, (int, float)) for number in values):
                raise BadLabel(f"{str(value)[:40]!r} is neither a number nor a name")
            if self.one_hot:
                number = one_hot_class(values) if len(values) == self.one_hot else None
                if number is None:
                    raise BadLabel(*not_one_hot(values, self.one_hot))
                return number_label(number)
            if values == [-1]:
                raise BadLabel("-1 is not between 0 and the number of classes", UNLABELLED)
            return number_label(one_of(values, self.label_element))
        except BadLabel as error:
            raise error.of(f"row {row:,} of {path}") from error

    def image(self, stored: bytes, mark: int) -> bytes | Pixels:
        if mark == BY_PATH:
            return (self.root / os.fsdecode(stored)).read_bytes()
        return stored if self.layout is None else self.layout.pixels_of_bytes(stored)


@dataclass
class FirstRows:
    """The first rows of a dataset, to find out how it keeps its images and labels."""

    images: list[bytes]
    paths: list[str]
    labels: list[Any]
    column: Column


def first_rows(shards: list[Shard], image: str, label: str, count: int) -> FirstRows | None:
    """Up to `count` rows with an image, of the first file that has some. What is damaged, the scan reports."""
    arrow = pyarrow_for(shards[0].path)
    for shard in shards:
        try:
            whole = whole_file(arrow, shard.data)
            for batch in record_batches(arrow, whole):
                found = locate(arrow, column_of(batch, image, shard.path), whole, shard.path)
                rows = [row for row in range(batch.num_rows) if found.places[row, 1]][:count]
                if rows:
                    labels = column_of(batch, label, shard.path).to_pylist()
                    stored = [
                        (whole[offset : offset + size].to_pybytes(), mark)
                        for offset, size, mark in found.places[rows].tolist()
                    ]
                    images = [data for data, mark in stored if mark != BY_PATH]
                    paths = [os.fsdecode(data) for data, mark in stored if mark == BY_PATH]
                    return FirstRows(images, paths, [labels[row] for row in rows], found)
        except (UserError, MemoryError):
            raise
        except Exception:  # a damaged file raises all kinds of exceptions in pyarrow; the scan says what is wrong
            return None
    return None


def column_of(batch: Any, name: str, path: Path) -> Any:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        raise UserError(
            f"{path} has no column {name!r}",
            why=f"its columns are {described(batch.schema)}",
            remedy="name the columns with data.image_field and data.label_field",
        )
    column = batch.column(places[0])
    column.validate(full=True)  # a damaged offset could point anywhere
    return column
