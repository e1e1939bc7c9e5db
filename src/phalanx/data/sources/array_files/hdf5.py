"""The arrays of HDF5 files. h5py finds them; rows that are stored as they are get read at their offsets, without it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.array_files.entry import ArrayEntry, Offsets, Values, rows_at_a_time
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError

MAGIC = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Hdf5Entry(ArrayEntry):
    """A dataset of an HDF5 file."""

    path: str  # inside of the file
    encoded: bool  # a row is a compressed image: bytes of any length
    text: bool

    @property
    def holds_encoded(self) -> bool:
        return self.encoded

    @property
    def is_text(self) -> bool:
        return self.text

    @property
    def kind(self) -> str:
        return "bytes of any length" if self.encoded else super().kind

    def offsets(self) -> Offsets | None:
        if self.encoded or self.text:
            return None
        with _opened(self.file.data, self.file.path) as file:
            return None if file.userblock_size else _offsets(file[self.path])

    def load(self) -> Values:
        with _opened(self.file.data, self.file.path) as file, _damage_of(self.file.path, self.name):
            dataset = file[self.path]
            values: Values = dataset.asstr("utf-8", "replace")[()] if self.text else dataset[()]
            return values.astype(np.str_) if self.text else values

    def pieces(self) -> Iterator[bytes]:
        step = rows_at_a_time(self.row_bytes)
        with _opened(self.file.data, self.file.path) as file, _damage_of(self.file.path, self.name):
            dataset = file[self.path]
            step = -(-step // dataset.chunks[0]) * dataset.chunks[0] if dataset.chunks else step
            for low in range(0, self.shape[0], step):
                yield dataset[low : low + step].tobytes()


class EncodedRows:
    """Compressed images of any length in a dataset; h5py reads them, one thread at a time."""

    def __init__(self, entry: Hdf5Entry) -> None:
        self._entry = entry
        self._dataset: Any = None

    def __getitem__(self, row: int) -> bytes:
        if self._dataset is None:
            if Stamp.of(self._entry.file.data) != self._entry.file.data_stamp:
                raise BadImage(f"{self._entry.file.path} has changed since it was opened")
            file = h5py_module(self._entry.file.path).File(self._entry.file.data, "r", locking=False)
            self._dataset = file[self._entry.path]
        try:
            found = self._dataset[row]
        except (OSError, RuntimeError, KeyError, ValueError) as error:  # what h5py raises for damage
            raise BadImage(f"it cannot be read: {str(error)[:200]}") from error
        return bytes(np.asarray(found).tobytes())


def hdf5_entries(shard: Shard) -> list[ArrayEntry]:
    """The datasets of a file, in the groups that they are in."""
    h5py, found = h5py_module(shard.path), list[ArrayEntry]()

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape:
            found.append(_entry(h5py, shard, name, item))

    with _opened(shard.data, shard.path) as file, _damage_of(shard.path, "/"):
        file.visititems(visit)
    return found


def _entry(h5py: Any, shard: Shard, name: str, dataset: Any) -> Hdf5Entry:
    vlen, text = h5py.check_vlen_dtype(dataset.dtype), h5py.check_string_dtype(dataset.dtype) is not None
    encoded = vlen == np.uint8 or (dataset.dtype.kind == "V" and dataset.dtype.names is None)
    return Hdf5Entry(name, shard, dataset.shape, dataset.dtype, name, encoded and len(dataset.shape) == 1, text)


def _offsets(dataset: Any) -> Offsets | None:
    """Where rows begin, if they are neither compressed nor cut by chunks."""
    count, row_bytes = dataset.shape[0], dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))
    if dataset.external or dataset.is_virtual or dataset.id.get_create_plist().get_nfilters():
        return None
    if dataset.chunks is None:
        start = dataset.id.get_offset()
        return None if start is None else np.arange(count, dtype=np.int64) * row_bytes + int(start)
    if dataset.chunks[1:] != dataset.shape[1:]:
        return None
    rows = dataset.chunks[0]
    starts: npt.NDArray[np.int64] = np.full(-(-count // rows), -1, dtype=np.int64)

    def note(info: Any) -> None:
        starts[info.chunk_offset[0] // rows] = info.byte_offset

    dataset.id.chunk_iter(note)
    if np.any(starts < 0):
        return None  # chunks that were never written stand for zeros
    number = np.arange(count, dtype=np.int64)
    begins: Offsets = starts[number // rows] + number % rows * row_bytes
    return begins


def h5py_module(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UserError(
            f"{path} is an HDF5 file, and h5py is not installed",
            why="HDF5 files are read with it",
            remedy="pip install 'phalanx[hdf5]'",
        ) from error
    return h5py


@contextlib.contextmanager
def _opened(data: Path, path: Path) -> Iterator[Any]:
    h5py = h5py_module(path)
    try:
        file = h5py.File(data, "r", locking=False)
    except OSError as error:
        if error.errno is not None:  # a missing file or permission
            raise
        raise UserError(
            f"{path} is not a whole HDF5 file", why=str(error)[:300], remedy="copy or download the file again"
        ) from error
    with file:
        yield file


@contextlib.contextmanager
def _damage_of(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, KeyError, ValueError, OSError) as error:  # what h5py raises for damage
        raise UserError(
            f"{name} of {path} cannot be read", why=str(error)[:300], remedy="copy or download the file again"
        ) from error
