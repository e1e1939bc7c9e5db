"""Where the values of a column are in an Arrow file: the offset and length of each row's bytes, text or numbers."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.shards.index import LARGEST_SAMPLE
from phalanx.data.sources.window import Damaged
from phalanx.errors import UserError

BY_PATH = 1  # the mark of a row with the path of a file instead of its bytes
Places = npt.NDArray[np.int64]  # (rows, 3): offset in the file, length, mark; length 0 where a row has no image


def whole_file(arrow: Any, path: Path) -> Any:
    """The bytes of a file, mapped into memory."""
    with path.open("rb") as file:
        return mapped(arrow, file.fileno(), path)


def mapped(arrow: Any, descriptor: int, path: Path) -> Any:
    try:
        return arrow.py_buffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    except ValueError as error:
        raise UserError(f"{path} is empty", why="it has 0 bytes", remedy="copy or download the file again") from error


def record_batches(arrow: Any, whole: Any) -> Iterator[Any]:
    """The record batches of a stream (what `datasets` writes) or of a file with a footer."""
    if whole.size >= 6 and whole[:6].to_pybytes() == b"ARROW1":
        reader = arrow.ipc.open_file(whole)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from arrow.ipc.open_stream(whole)


def is_inside(column: Any, whole: Any) -> bool:
    """Whether a column's values are used where they are in the file; compressed ones are elsewhere in memory."""
    buffers = [buffer for buffer in column.buffers() if buffer is not None and buffer.size]
    return all(0 <= buffer.address - whole.address <= whole.size - buffer.size for buffer in buffers)


@dataclass
class Column:
    """The places of a column's values. Lists of numbers have a type and the lengths at each level of nesting."""

    places: Places
    dtype: np.dtype[Any] | None = None
    sizes: list[int] = field(default_factory=list)


def locate(arrow: Any, column: Any, whole: Any, path: Path) -> Column:
    """The places of the images of a column: bytes, text, structures with bytes and path, or lists of numbers."""
    if isinstance(column.type, arrow.BaseExtensionType):
        column = column.storage
    kind = arrow.types
    if kind.is_struct(column.type):
        return Column(_of_struct(arrow, column, whole, path))
    if kind.is_list(column.type) or kind.is_large_list(column.type) or kind.is_fixed_size_list(column.type):
        return _of_lists(arrow, column, whole, path)
    return Column(_spans(arrow, column, whole, path))


def is_nested(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind))


def _of_struct(arrow: Any, images: Any, whole: Any, path: Path) -> Places:
    names = [field.name for field in images.type]
    spans = np.zeros((len(images), 3), dtype=np.int64)
    for name, mark in (("path", BY_PATH), ("bytes", 0)):
        if name in names:
            found = _spans(arrow, images.field(name), whole, path)
            found[:, 2] = mark
            spans = np.where(found[:, 1:2] > 0, found, spans)
    spans[~images.is_valid().to_numpy(zero_copy_only=False), 1] = 0
    return spans


def _spans(arrow: Any, column: Any, whole: Any, path: Path) -> Places:
    """The places of a column of bytes or text."""
    kind, spans = column.type, np.zeros((len(column), 3), dtype=np.int64)
    wide = arrow.types.is_large_binary(kind) or arrow.types.is_large_string(kind)
    text = arrow.types.is_string(kind) or arrow.types.is_large_string(kind)
    if not (wide or text or arrow.types.is_binary(kind)):
        if arrow.types.is_null(kind):
            return spans
        raise UserError(
            f"the images of {path} are of the type {str(kind)[:80]}",
            why="images are read from columns of bytes, of structures with bytes and path, of paths, or of lists of "
            "numbers",
            remedy="cast the column to datasets.Image, or name another one with data.image_field",
        )
    _, offsets, data = column.buffers()
    if data is None or not data.size or not len(column):
        return spans
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32, len(column) + 1 + column.offset)[column.offset :]
    spans[:, 0] = _start(data, whole, path) + bounds[:-1]
    spans[:, 1] = np.diff(bounds.astype(np.int64))
    spans[:, 2] = BY_PATH if text else 0
    return _checked(column, spans)


def _of_lists(arrow: Any, column: Any, whole: Any, path: Path) -> Column:
    """The places of rows of numbers, in lists or lists of lists that all have the same lengths."""
    rows, bounds, sizes = column, np.arange(len(column) + 1), list[int]()
    while is_nested(arrow, column.type):
        if arrow.types.is_fixed_size_list(column.type):
            lengths = np.array([column.type.list_size])
            bounds = (bounds + column.offset) * column.type.list_size
        else:
            offsets = column.offsets.to_numpy().astype(np.int64)
            lengths = np.unique(np.diff(offsets)[bounds[0] : bounds[-1]])
            lengths = lengths[lengths > 0] if not sizes else lengths  # a row without an image is an empty list
            bounds = offsets[bounds]
        sizes.append(_only_length(lengths, path, len(sizes)))
        column = column.values
    if not (arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)) or column.null_count:
        raise UserError(
            f"the images of {path} are lists of {str(column.type)[:80]}",
            why="pixels are integers or floating-point numbers" + (", none missing" if column.null_count else ""),
            remedy="cast the column to datasets.Image, or name another one with data.image_field",
        )
    dtype = np.dtype(column.type.to_pandas_dtype())
    spans = np.zeros((len(rows), 3), dtype=np.int64)
    data = column.buffers()[1]
    if data is not None and data.size and len(rows):
        spans[:, 0] = _start(data, whole, path) + (bounds[:-1] + column.offset) * dtype.itemsize
        spans[:, 1] = np.diff(bounds) * dtype.itemsize
    return Column(_checked(rows, spans), dtype, sizes)


def _only_length(lengths: npt.NDArray[np.int64], path: Path, level: int) -> int:
    if len(lengths) > 1:
        what = "images" if not level else "rows of images"
        raise UserError(
            f"the {what} of {path} are lists of different lengths: {lengths[0]:,} to {lengths[-1]:,}",
            why="pixels in lists are read where all images have the same size",
            remedy="save the images compressed, as a column of datasets.Image",
        )
    return int(lengths[0]) if len(lengths) else 0


def _start(data: Any, whole: Any, path: Path) -> int:
    """Where a column's values begin in the file."""
    start = data.address - whole.address
    if not 0 <= start <= start + data.size <= whole.size:
        raise UserError(
            f"{path} is compressed in parts",
            why="its first rows are not, and images are read at their offsets in the file",
            remedy="save the dataset again, without compression",
        )
    return int(start)


def _checked(rows: Any, spans: Places) -> Places:
    spans[~rows.is_valid().to_numpy(zero_copy_only=False), 1] = 0
    if len(spans) and int(spans[:, 1].max()) > LARGEST_SAMPLE:
        raise Damaged(int(spans[int(spans[:, 1].argmax()), 0]), "a value of more than a gigabyte is not an image")
    return spans
