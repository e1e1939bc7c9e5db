"""A file of teachers' logits: a row for each epoch's view of each sample, mapped into memory, beside a JSON header.

A row counts when its checksum fits, which is written after it. So a row that a killed process, a power cut or a full
disk left unfinished is computed again, and several processes can write to one file: each writes its own samples.
"""

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phalanx.atomic import write_atomically
from phalanx.config.text import read_json
from phalanx.data.order import Indices
from phalanx.errors import UserError

HEADER, ROWS = "cache.json", "logits.bin"
_CHECKSUM_BYTES = 4
_LARGEST = 65504.0  # of a 16-bit float
_SHOWN = 120  # characters of a value in messages

Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class CacheShape:
    """How many rows there are, and what one has."""

    epochs: int
    samples: int
    teachers: int
    classes: int
    top_k: int | None  # None: all logits in float32, the very bits

    @property
    def row(self) -> np.dtype[Any]:
        if self.top_k is None:
            return np.dtype([("sum", "<u4"), ("values", "<f4", (self.teachers, self.classes))])
        index = "<u2" if self.classes <= 1 << 16 else "<u4"
        size = (self.teachers, self.top_k)
        return np.dtype(
            [("sum", "<u4"), ("rest", "<f4", (self.teachers,)), ("classes", index, size), ("values", "<f2", size)]
        )

    @property
    def num_bytes(self) -> int:
        return self.epochs * self.samples * self.row.itemsize

    def described(self) -> dict[str, Any]:
        """For the header."""
        counts = {"epochs": self.epochs, "number of teachers": self.teachers, "number of classes": self.classes}
        return {**counts, "kept of each": self.top_k, "bytes of a row": self.row.itemsize}

    def __str__(self) -> str:
        kept = self.classes if self.top_k is None else self.top_k
        teachers = f" × {self.teachers} teachers" if self.teachers > 1 else ""
        each = "4 bytes" if self.classes <= 1 << 16 or self.top_k is None else "6 bytes"
        more = self.row.itemsize - self.teachers * kept * (6 if each == "6 bytes" else 4)
        return (
            f"{self.samples:,} samples × {self.epochs:,} epochs{teachers} × {kept:,} logits × {each}, and {more} bytes "
            f"for each view = {_size(self.num_bytes)}"
        )

    def pack(self, logits: Tensor) -> Rows:
        """Rows of logits (teachers, n, classes), without their checksums."""
        by_sample = logits.detach().float().cpu().transpose(0, 1)  # (n, teachers, classes)
        rows = np.zeros(len(by_sample), dtype=self.row)
        if self.top_k is None:
            rows["values"] = by_sample.numpy()
            return rows
        values, classes = by_sample.topk(self.top_k, dim=2)
        others = by_sample.scatter(2, classes, -math.inf).logsumexp(2)
        rows["rest"] = torch.where(others.isinf(), torch.zeros_like(others), others).numpy()
        rows["classes"], rows["values"] = classes.numpy(), values.clamp(-_LARGEST, _LARGEST).half().numpy()
        return rows

    def unpack(self, rows: Rows) -> Tensor:
        """Logits (teachers, n, classes). Those that were not kept share evenly what was left for them."""
        if self.top_k is None:
            return torch.from_numpy(np.ascontiguousarray(rows["values"])).transpose(0, 1).contiguous()
        share = math.log(max(1, self.classes - self.top_k))
        rest = torch.from_numpy(np.ascontiguousarray(rows["rest"])) - share
        logits = rest[:, :, None].expand(-1, -1, self.classes).clone()
        classes = torch.from_numpy(rows["classes"].astype(np.int64))
        logits.scatter_(2, classes, torch.from_numpy(rows["values"].astype(np.float32)))
        return logits.transpose(0, 1).contiguous()


class CacheFile:
    """The rows of a folder, by (epoch, sample)."""

    def __init__(self, folder: Path, shape: CacheShape) -> None:
        self.folder, self.shape = folder, shape
        self._rows: Rows = np.memmap(folder / ROWS, dtype=shape.row, mode="r+", shape=(shape.epochs, shape.samples))

    def read(self, epoch: int, indices: Indices) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """A copy of the rows of these samples, and which of them count."""
        rows = np.array(self._rows[epoch, indices])
        return rows, rows["sum"] == _checksums(rows, epoch, indices)

    def write(self, epoch: int, indices: Indices, rows: Rows) -> None:
        """Write rows, then their checksums."""
        place = self._rows[epoch]
        for name in self.shape.row.names or ():
            if name != "sum":
                place[name][indices] = rows[name]
        place["sum"][indices] = _checksums(rows, epoch, indices)

    def close(self) -> None:
        if isinstance(self._rows, np.memmap):
            self._rows.flush()


def open_file(folder: Path, shape: CacheShape, identity: Mapping[str, Any], *, any_epochs: bool) -> CacheFile:
    """The cache of a folder, made if there is none. One with another identity is refused.

    With `any_epochs` the number of epochs is that of the file, if there is one.
    """
    header = {"format": 1, **identity, **shape.described()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / HEADER).exists():
            _make(folder, shape, header)
        found = read_json((folder / HEADER).read_bytes())
    except (OSError, ValueError) as error:
        raise _unusable(folder, error, f"; it takes {_size(shape.num_bytes)}") from error
    differing = [
        name
        for name in {**header, **found}
        if header.get(name) != found.get(name) and not (any_epochs and name == "epochs")
    ]
    if differing:
        name = differing[0]
        raise UserError(
            f"the cache of logits in {folder} is of another run: {name} differs",
            why=f"it has {_short(found.get(name))}, and this run {_short(header.get(name))}",
            remedy="name another folder with distill.cache, or delete that one",
        )
    shape = CacheShape(found["epochs"], shape.samples, shape.teachers, shape.classes, shape.top_k)
    try:
        if (folder / ROWS).stat().st_size != shape.num_bytes:
            raise ValueError(f"{ROWS} is {(folder / ROWS).stat().st_size:,} bytes long, not {shape.num_bytes:,}")
        return CacheFile(folder, shape)
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from error


def _make(folder: Path, shape: CacheShape, header: Mapping[str, Any]) -> None:
    """Make the file, then the header. Several processes may do this at once: nobody writes rows before the header."""
    descriptor = os.open(folder / ROWS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(descriptor).st_size > shape.num_bytes:
            os.ftruncate(descriptor, 0)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a signal in the middle of training
            os.posix_fallocate(descriptor, 0, shape.num_bytes)
        else:
            os.ftruncate(descriptor, shape.num_bytes)
    finally:
        os.close(descriptor)
    try:
        with write_atomically(folder / HEADER, overwrite=False) as out:
            out.write(json.dumps(dict(header), indent=1).encode())
    except FileExistsError:
        pass  # another process was faster


def _checksums(rows: Rows, epoch: int, indices: Indices) -> npt.NDArray[np.uint32]:
    """One for each row, with its place; never 0, which is what a new file has."""
    content = rows.view(np.uint8).reshape(len(rows), -1)[:, _CHECKSUM_BYTES:]
    places = (zlib.crc32(f"{epoch} {index}".encode()) for index in indices.tolist())
    sums = [zlib.crc32(row.tobytes(), place) or 1 for row, place in zip(content, places, strict=True)]
    return np.array(sums, dtype=np.uint32)


def _unusable(folder: Path, error: Exception, more: str = "") -> UserError:
    return UserError(
        f"the cache of logits in {folder} cannot be used",
        why=(getattr(error, "strerror", None) or str(error)) + more,
        remedy="name another folder with distill.cache, or make room there; distill.cache_epochs and "
        "distill.cache_top_k make it smaller",
    )


def _size(num_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.3g} {unit}"
    return f"{num_bytes} bytes"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
