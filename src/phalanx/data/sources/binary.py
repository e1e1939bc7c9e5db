"""Binary files of records, each a few label bytes and the pixels of an image: CIFAR's layout under any names.

Such files do not say how large a record is. Their lengths leave a few possibilities, of which the first bytes of
records must look like labels. If that is not one, nothing is guessed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Labels, without_zero
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.pixel_layout import SMALLEST_SIDE, PixelShape, given_shape, is_planar, looks_planar
from phalanx.errors import UserError

ENDING = ".bin"
LABEL_BYTES = (1, 2)  # without the setting
CIFAR_100 = (2, 32, 3)  # whose first label is coarse and whose second is fine
NAMES_FILE = "batches.meta.txt"  # CIFAR-10's names of classes
LARGEST_LABEL = 254  # pixels have 255 somewhere
LOOKED_AT = 4096  # records of a file, to find the layout
MAX_TOLD = 8
HOW_TO_SAY = "data.image_shape=[HEIGHT,WIDTH,CHANNELS] and data.label_bytes=N"


@dataclass(frozen=True)
class Record:
    """The layout of a record: label bytes, then pixels."""

    label_bytes: int
    shape: PixelShape

    @property
    def size(self) -> int:
        return self.label_bytes + self.shape.count

    def __str__(self) -> str:
        return f"{self.label_bytes} label byte{'s' if self.label_bytes > 1 else ''} and {self.shape} pixels"

    @property
    def setting(self) -> str:
        return f"{self.shape.setting} data.label_bytes={self.label_bytes}"

    def labels(self, file: Path, most: int | None = None) -> npt.NDArray[np.uint8]:
        """The label bytes of a file's records, or of the first `most` of them."""
        records = np.memmap(file, np.uint8, "r").reshape(-1, self.size)
        return np.array(records[:most, : self.label_bytes])


def open_binary(paths: list[Path], request: OpenRequest) -> ArraySource:
    """One dataset from binary files. Other binary files beside them help to find the layout."""
    config = request.config
    empty = next((path for path in paths if not path.stat().st_size), None)
    if empty is not None:
        raise UserError(f"{empty} is empty", why="it has 0 bytes", remedy="copy or download the file again")
    record, together = _record(paths, config)
    place = _label_place(paths[0], record, config)
    parts = [_read(path, record, place) for path in paths]
    labels: Labels = np.concatenate([labels for _, labels in parts])
    every: Labels = np.concatenate([record.labels(path)[:, place] for path in together]).astype(np.int64)
    what = paths[0] if len(paths) == 1 else f"{len(paths):,} files ({paths[0]} …)"
    source = array_source(
        str(paths[0].parent.name if len(paths) > 1 else paths[0]),
        f"binary {what}",
        np.concatenate([images for images, _ in parts]),
        labels,
        _class_names(paths[0].parent, int(every.max()) + 1),
        image_size=max(record.shape.height, record.shape.width),
        channels=request.channels,
    )
    source.notes = (*_notes(source, record, place, config), *without_zero(every))
    return source


def _record(paths: Sequence[Path], config: DataConfig) -> tuple[Record, Sequence[Path]]:
    """The layout of records, and the files that have it."""
    beside = {path for folder in {path.parent for path in paths} for path in folder.iterdir()}
    others = sorted(path for path in beside - set(paths) if path.suffix.lower() == ENDING and path.stat().st_size)
    for together in ([*paths, *others], paths):
        possible = list(_possible(together, config))
        if possible:
            break
    if config.image_shape and len(possible) == 1:
        return possible[0], together
    scores = {record: _score(record, together) for record in possible}
    best = [record for record, score in scores.items() if score and score == max(scores.values())]
    # Several records together begin with a label as well.
    best = [record for record in best if not any(record.size % other.size == 0 for other in best if other != record)]
    if len(best) == 1 and not _is_several(best[0], together):
        return best[0], together
    raise _not_one(paths, possible, len(best), config)


def _possible(paths: Sequence[Path], config: DataConfig) -> Iterator[Record]:
    """The layouts that divide the length of every file."""
    length = math.gcd(*(path.stat().st_size for path in paths))
    planar = is_planar(config, usually=True)
    given = given_shape(config, planar=True)
    for label_bytes in (config.label_bytes,) if config.label_bytes else LABEL_BYTES:
        for shape in [given] if given else _squares(length - label_bytes, planar):
            if length % (label_bytes + shape.count) == 0:
                yield Record(label_bytes, shape)


def _squares(most: int, planar: bool) -> Iterator[PixelShape]:
    for channels in (1, 3):
        for side in range(SMALLEST_SIDE, math.isqrt(max(0, most) // channels) + 1):
            yield PixelShape(side, side, channels, planar)


def _score(record: Record, paths: Sequence[Path]) -> int:
    """How much label bytes look like classes: 2 if they count without gaps from 0 or 1, 1 if they have few values."""
    labels = np.concatenate([record.labels(path, LOOKED_AT) for path in paths])
    return min(_column_score(column) for column in labels.T)


def _column_score(column: npt.NDArray[np.uint8]) -> int:
    """The same for one of them. Pixels do neither, and have 255 somewhere."""
    values = np.unique(column)
    if len(values) < 2 or values[-1] > LARGEST_LABEL:
        return 0
    if values[0] <= 1 and len(values) == int(values[-1]) + 1 - int(values[0]):
        return 2
    return int(2 * len(values) <= len(column))


def _is_several(record: Record, paths: Sequence[Path]) -> bool:
    """Whether it may be several smaller records, of images that are not square: they would begin with labels, too."""
    parts = [size for size in range(SMALLEST_SIDE**2, record.size // 2 + 1) if record.size % size == 0]
    for size in parts:
        columns = [np.memmap(path, np.uint8, "r")[: LOOKED_AT * size : size] for path in paths]
        if _column_score(np.concatenate(columns)) == 2:
            return True
    return False


def _label_place(path: Path, record: Record, config: DataConfig) -> int:
    """Which of the label bytes is the class."""
    if config.label_element is not None and config.label_element < record.label_bytes:
        return config.label_element
    if record.label_bytes == 1 and config.label_element is None:
        return 0
    if config.label_element is None and (record.label_bytes, record.shape.height, record.shape.channels) == CIFAR_100:
        return 1
    labels = record.labels(path)
    ranges = ", ".join(
        f"byte {place}: {labels[:, place].min()} to {labels[:, place].max()}" for place in range(record.label_bytes)
    )
    raise UserError(
        f"records of {path} have {record.label_bytes} label byte(s), and one of them is the class",
        why=f"in its first file, {ranges}",
        remedy="choose it with data.label_element, counted from 0",
    )


def _read(path: Path, record: Record, place: int) -> tuple[Pixels, Labels]:
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, record.size)
    pixels, shape = records[:, record.label_bytes :], record.shape
    if shape.planar:
        images = pixels.reshape(-1, shape.channels, shape.height, shape.width).transpose(0, 2, 3, 1)
    else:
        images = pixels.reshape(-1, shape.height, shape.width, shape.channels)
    return np.ascontiguousarray(images[..., :3]), records[:, place].astype(np.int64)


def _class_names(folder: Path, num_classes: int) -> list[str]:
    file = folder / NAMES_FILE
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    names = [line.strip() for line in lines if line.strip()]
    return names if len(names) >= num_classes else [str(number) for number in range(num_classes)]


def _notes(source: ArraySource, record: Record, place: int, config: DataConfig) -> Iterator[str]:
    which = f", of which byte {place} is the class" if record.label_bytes > 1 else ""
    said = f"records: {record}{which}"
    shape, other = record.shape, "hwc" if record.shape.planar else "chw"
    if shape.channels > 1 and config.image_layout is None:
        stored = source.images[:32].transpose(0, 3, 1, 2) if shape.planar else source.images[:32]
        look = looks_planar([np.ascontiguousarray(image).reshape(-1) for image in stored], shape)
        seems = look is not None and look != shape.planar and source.channels == shape.channels
        said += f"; {'they look otherwise; ' if seems else ''}if the order is another: data.image_layout={other}"
    yield said


def _not_one(paths: Sequence[Path], possible: Sequence[Record], fitting: int, config: DataConfig) -> UserError:
    sizes = sorted({path.stat().st_size for path in paths})
    length = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    where = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"
    if not possible:
        asked = " of data.image_shape" if config.image_shape else " of square images with 1 or 3 channels"
        return UserError(
            f"{where} cannot be cut into records{asked}",
            why=f"files have {length} bytes, and no such record, with its label bytes, divides that",
            remedy=f"give the layout of a record: {HOW_TO_SAY}; or check that files are complete",
        )
    ways = "; ".join(f"{record} ({record.size:,} bytes)" for record in possible[:MAX_TOLD])
    looks = {0: "in none of them the first bytes look like labels", 1: "smaller records, not square, may fit as well"}
    return UserError(
        f"nothing says how the records of {where} are laid out",
        why=f"files have {length} bytes, and these fit: {ways}{' …' if len(possible) > MAX_TOLD else ''}; "
        + looks.get(fitting, "in more than one the first bytes look like labels"),
        remedy=f"say which: {' or '.join(record.setting for record in possible[:3])}",
    )
