"""Images in Arrow files of Hugging Face `datasets`: the offsets of each row's bytes in the file.

pyarrow reads the tables once; after that, images are read at their offsets, as in every other format.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.shards.classes import BadLabel, number_label, one_of, refuse_names, text_label
from phalanx.data.sources.shards.index import LARGEST_SAMPLE, AnyLabel, IndexBuilder
from phalanx.data.sources.shards.indexing import Reader
from phalanx.data.sources.shards.label_sets import any_set
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError

BY_PATH = 1  # the mark of a row with the path of a file instead of its bytes


@dataclass(frozen=True)
class ArrowReader(Reader):
    """Rows of Arrow files: a column with images, and one with labels."""

    image_column: str
    label_column: str
    label_element: int | None
    multi_label: bool = False
    are_classes: bool = False  # whether the column's type says that its numbers are class numbers

    @property
    def fingerprint(self) -> str:
        several = f"multi_label classes={self.are_classes}"
        labels = several if self.multi_label else f"label_element={self.label_element}"
        return f"arrow image={self.image_column!r} label={self.label_column!r} {labels}"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        arrow = _pyarrow(window.path)
        with arrow.memory_map(str(window.path)) as file:
            whole = file.read_buffer(window.size)
        row, without_image = 0, 0
        for labels, places in self._batches(arrow, whole, window):
            for label, (offset, length, mark) in zip(labels, places, strict=True):
                if length:
                    builder.add(offset, length, self._label(window, row, label), mark)
                without_image += not length
                row += 1
        if without_image:
            builder.notes.append(f"{without_image:,} rows without an image are left out")

    def _batches(self, arrow: Any, whole: Any, window: Window) -> Iterator[tuple[list[Any], list[list[int]]]]:
        """(labels, positions of the images) batch by batch."""
        offset = 0
        try:
            for batch in _record_batches(arrow, whole):
                images = self._column(window, batch, self.image_column)
                labels = self._column(window, batch, self.label_column).to_pylist()
                places = _places(arrow, images, whole, window).tolist()
                yield labels, places
                offset = max([offset, *(place[0] + place[1] for place in places)])
        except (UserError, Damaged):
            raise
        except Exception as error:  # a damaged file raises all kinds of exceptions in pyarrow
            raise Damaged(offset, f"from here on it is not an Arrow file: {str(error)[:200]}") from error

    def _column(self, window: Window, batch: Any, name: str) -> Any:
        places = batch.schema.get_all_field_indices(name)
        columns = ", ".join(batch.schema.names)
        if len(places) != 1:
            raise UserError(
                f"{window.path} has no column {name!r}",
                why=f"its columns are {columns[:300]}",
                remedy="name the columns with data.image_field and data.label_field",
            )
        column = batch.column(places[0])
        column.validate(full=True)  # a damaged offset could point anywhere
        return column

    def _label(self, window: Window, row: int, value: Any) -> AnyLabel:
        try:
            if self.multi_label:
                return any_set(value, are_classes=self.are_classes)
            if isinstance(value, str):
                return text_label(value)
            values = value if isinstance(value, list) else [value]
            refuse_names(values if all(isinstance(name, str) for name in values) else [])
            if not all(isinstance(number, (int, float)) for number in values):
                raise BadLabel(f"{str(value)[:40]!r} is neither a number nor a name")
            return number_label(one_of(values, self.label_element))
        except BadLabel as error:
            raise error.of(f"row {row:,} of {window.path}") from error

    def image(self, stored: bytes, mark: int) -> bytes:
        return Path(os.fsdecode(stored)).read_bytes() if mark == BY_PATH else stored


def _record_batches(arrow: Any, whole: Any) -> Iterator[Any]:
    """The record batches of a stream (what `datasets` writes) or of a file with a footer."""
    if whole.size >= 6 and whole[:6].to_pybytes() == b"ARROW1":
        reader = arrow.ipc.open_file(whole)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from arrow.ipc.open_stream(whole)


def _places(arrow: Any, images: Any, whole: Any, window: Window) -> npt.NDArray[np.int64]:
    """(offset in the file, length, mark) of each row's image; length 0 where it has none."""
    if not arrow.types.is_struct(images.type):
        return _spans(arrow, images, whole, window)
    names = [field.name for field in images.type]
    spans = np.zeros((len(images), 3), dtype=np.int64)
    for name, mark in (("path", BY_PATH), ("bytes", 0)):
        if name in names:
            found = _spans(arrow, images.field(name), whole, window)
            found[:, 2] = mark
            spans = np.where(found[:, 1:2] > 0, found, spans)
    spans[~images.is_valid().to_numpy(zero_copy_only=False), 1] = 0
    return spans


def _spans(arrow: Any, column: Any, whole: Any, window: Window) -> npt.NDArray[np.int64]:
    """(offset in the file, length, 0) of each value of a column of bytes or text."""
    kind, spans = column.type, np.zeros((len(column), 3), dtype=np.int64)
    wide = arrow.types.is_large_binary(kind) or arrow.types.is_large_string(kind)
    if not (wide or arrow.types.is_binary(kind) or arrow.types.is_string(kind)):
        if arrow.types.is_null(kind):
            return spans
        raise UserError(
            f"the images of {window.path} are of the type {str(kind)[:80]}",
            why="images are read from columns of bytes, or of structures with bytes and path",
            remedy="cast the column to datasets.Image, or name another one with data.image_field",
        )
    _, offsets, data = column.buffers()
    if data is None or not data.size or not len(column):
        return spans
    start = data.address - whole.address
    if not 0 <= start <= start + data.size <= whole.size:
        raise UserError(
            f"{window.path} is compressed",
            why="images are read at their offsets in the file",
            remedy="save the dataset again, without compression",
        )
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32, len(column) + 1 + column.offset)[column.offset :]
    spans[:, 0] = start + bounds[:-1]
    spans[:, 1] = np.diff(bounds.astype(np.int64))
    spans[~column.is_valid().to_numpy(zero_copy_only=False), 1] = 0
    if int(spans[:, 1].max()) > LARGEST_SAMPLE:
        raise Damaged(int(spans[int(spans[:, 1].argmax()), 0]), "a value of more than a gigabyte is not an image")
    return spans


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise UserError(
            f"{path} is an Arrow file, and pyarrow is not installed",
            why="Hugging Face datasets on disk are read with it",
            remedy="pip install 'phalanx[huggingface]'",
        ) from error
    return pyarrow
