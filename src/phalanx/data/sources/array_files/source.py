"""A Source over arrays in files: a batch's rows are read, scaled to 8 bits and cropped."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phalanx.data.base import Framing, Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.decode.ranges import OutOfRange, Scale
from phalanx.data.order import Indices
from phalanx.data.sources.array_files.entry import ArrayEntry, Values
from phalanx.data.sources.array_files.layout import Layout
from phalanx.data.sources.array_files.rows import Rows
from phalanx.data.sources.arrays import as_channels, cropped
from phalanx.data.sources.encoded import EncodedSource, as_png

SMALL_IMAGE_BYTES = 32 << 10


@dataclass(frozen=True)
class ArrayPart:
    """An array with its rows; `start` is the number of its first row in the split."""

    entry: ArrayEntry
    rows: Rows
    start: int

    def name(self, row: int) -> str:
        # Without slashes: names of samples are compared as paths of files.
        array = "" if self.entry.file.path.stem in self.entry.name else f":{self.entry.name.replace('/', ':')}"
        return f"{self.entry.file.path}{array} #{row}"


@dataclass(kw_only=True)
class StoredSource(EncodedSource):
    """A Source of equally large images in arrays. Sample i is row rows[i] of all arrays together."""

    parts: Sequence[ArrayPart]
    layout: Layout
    scale: Scale
    rows: Indices

    def parts_of_batch(self, count: int) -> list[slice]:
        """Small images are not worth a thread: most of the work on them holds Python's lock."""
        small = self.parts[0].entry.row_bytes < SMALL_IMAGE_BYTES
        return [slice(0, count)] if small else super().parts_of_batch(count)

    def name(self, index: int) -> str:
        part, row = part_of(self.parts, int(self.rows[index]))
        return part.name(row)

    def subset(self, chosen: Indices) -> "StoredSource":
        return replace(self, description=self.describe_part(chosen), labels=self.labels[chosen], rows=self.rows[chosen])

    def image(self, index: int) -> Pixels:
        """One image (height, width, channels). Raises BadImage."""
        pixels: Pixels = self._images([int(self.rows[index])])[0]
        return pixels

    def encoded(self, index: int) -> bytes:
        """As a PNG, for those who pack the data."""
        return as_png(self.image(index))

    def _decode(self, wanted: list[int], framing: Framing, epoch: int, out: Pixels) -> list[str]:
        rows, reasons = self.rows[wanted].tolist(), [""] * len(wanted)
        try:
            images = self._images(rows)
        except (BadImage, OSError):
            images, reasons = self._one_by_one(rows)
        size = np.array([[self.layout.height, self.layout.width]], dtype=np.int64)
        views = framing.views(np.array(wanted, dtype=np.int64), size.repeat(len(wanted), axis=0), epoch)
        out[:] = cropped(images, np.arange(len(wanted)), views, framing)
        return reasons

    def _one_by_one(self, rows: list[int]) -> tuple[Pixels, list[str]]:
        """The same images where one of them is bad: it is black, with the reason."""
        shape = (len(rows), self.layout.height, self.layout.width, self.channels)
        images, reasons = np.zeros(shape, dtype=np.uint8), [""] * len(rows)
        for place, row in enumerate(rows):
            try:
                images[place] = self._images([row])[0]
            except BadImage as error:
                reasons[place] = str(error)
            except OSError as error:
                reasons[place] = f"it cannot be read: {error.strerror or error}"
        return images, reasons

    def _images(self, rows: list[int]) -> Pixels:
        values = self.layout.arranged(stacked(self.parts, rows))
        try:
            return as_channels(self.scale.apply(values), self.channels, self.description)
        except OutOfRange as error:
            raise BadImage(str(error)) from error


@dataclass(kw_only=True)
class EncodedArraySource(EncodedSource):
    """A Source of compressed images in an array of bytes."""

    part: ArrayPart
    read_row: Callable[[int], bytes]

    def encoded(self, index: int) -> bytes:
        return self.read_row(index)

    def name(self, index: int) -> str:
        return self.part.name(index)


def part_of(parts: Sequence[ArrayPart], row: int) -> tuple[ArrayPart, int]:
    """The array that a row is in, and its number there."""
    part = parts[bisect_right(parts, row, key=lambda part: part.start) - 1] if len(parts) > 1 else parts[0]
    return part, row - part.start


def stacked(parts: Sequence[ArrayPart], rows: Sequence[int]) -> Values:
    """The values of some rows as one array (n, …). Raises OSError or BadImage."""
    found = [part.rows[row] for part, row in (part_of(parts, row) for row in rows)]
    return np.stack(found)
