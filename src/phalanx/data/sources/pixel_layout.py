"""Raw pixels: the shape of an image, the order of its channels, and the type of its values.

A shape comes from the settings, from fields beside the pixels, or, for squares, from their number alone. Where more
than one would fit, all of them are told and none is chosen.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.decode.ranges import OutOfRange, Scale, range_of, scale_of
from phalanx.errors import UserError

CHANNELS = (1, 3, 4)  # grey, colour, colour and alpha
SMALLEST_SIDE = 8  # of a square that is known by its number of pixels alone
INTEGERS = {1: "<u1", 2: "<u2", 4: "<i4", 8: "<i8"}  # by the bytes of a value
FLOATS = {4: "<f4", 8: "<f8"}

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class PixelShape:
    """Height, width and channels of an image; `planar` if its channels are stored one after the other."""

    height: int
    width: int
    channels: int
    planar: bool = False

    @property
    def count(self) -> int:
        return self.height * self.width * self.channels

    def __str__(self) -> str:
        sizes = f"{self.height}×{self.width}×{self.channels}"
        return f"{sizes} channel by channel" if self.planar and self.channels > 1 else sizes

    @property
    def setting(self) -> str:
        """How the user writes it."""
        return f"data.image_shape=[{self.height},{self.width},{self.channels}]"

    def arranged(self, values: Values) -> Values:
        """Stored values as (height, width, channels)."""
        if self.planar:
            return values.reshape(self.channels, self.height, self.width).transpose(1, 2, 0)
        return values.reshape(self.height, self.width, self.channels)


def shape_of(sizes: Sequence[int], planar: bool) -> PixelShape | None:
    """The shape that sizes say: height, width and channels, in the order of storage; None if they are not an image's.

    Three pixels of height and 32 channels make no image: then the channels come first.
    """
    if len(sizes) == 2:
        sizes = (*sizes, 1)
    if len(sizes) != 3 or min(sizes) < 1:
        return None
    if sizes[2] not in CHANNELS and sizes[0] in CHANNELS:
        return PixelShape(sizes[1], sizes[2], sizes[0], planar=True)
    return PixelShape(sizes[0], sizes[1], sizes[2], planar) if sizes[2] in CHANNELS else None


def square_of(count: int, planar: bool) -> PixelShape | None:
    """The grey or colour square of so many values. There is one at most: no square number is three times another."""
    for channels in (1, 3):
        side = math.isqrt(count // channels)
        if side >= SMALLEST_SIDE and side * side * channels == count:
            return PixelShape(side, side, channels, planar)
    return None


def given_shape(config: DataConfig, *, planar: bool = False) -> PixelShape | None:
    """The shape in the settings, if there is one; `planar` is the format's usual order of channels."""
    if config.image_shape is None:
        return None
    shape = shape_of(config.image_shape, is_planar(config, usually=planar))
    if shape is None:
        raise UserError(
            f"data.image_shape={config.image_shape} is not the shape of an image",
            why="it is [height, width, channels], or [channels, height, width] if these come first; 1, 3 or 4 channels",
            remedy="for example data.image_shape=[28,28,1]",
        )
    return shape


def is_planar(config: DataConfig, *, usually: bool = False) -> bool:
    """Whether channels are stored one after the other: what the settings say, or what is usual in a format."""
    return usually if config.image_layout is None else config.image_layout == "chw"


@dataclass(frozen=True)
class PixelType:
    """The type of stored values, and how they become 0 … 255."""

    dtype: np.dtype[Any]
    scale: Scale

    def __str__(self) -> str:
        name = self.dtype.name
        return name if self.dtype == np.uint8 else f"{name}, {self.scale}"

    def pixels(self, values: Values, shape: PixelShape) -> Pixels:
        """Values of one image as pixels (height, width, channels). Raises OutOfRange."""
        return self.scale.apply(shape.arranged(values))


def type_of(images: Sequence[Values]) -> PixelType:
    """The type of some images' values and the rule for their range. Raises OutOfRange if there is no rule."""
    dtype = images[0].dtype
    return PixelType(dtype, scale_of(dtype, *range_of(images)))


def values_of(images: Sequence[bytes], value_bytes: int) -> list[Values] | None:
    """Raw bytes as numbers of so many bytes each; None if they are no pixels.

    Small integers, read as floating-point numbers, are nearly zero: what can be integers of pixels is.
    """
    if value_bytes not in INTEGERS:
        return None
    found: list[Values] = [np.frombuffer(image, INTEGERS[value_bytes]) for image in images]
    if value_bytes in FLOATS and not _are_pixels(found):
        found = [np.frombuffer(image, FLOATS[value_bytes]) for image in images]
    return found if _are_pixels(found) else None


def _are_pixels(images: Sequence[Values]) -> bool:
    try:
        type_of(images)
    except OutOfRange:
        return False
    return True


def looks_planar(images: Sequence[Values], shape: PixelShape) -> bool | None:
    """Whether neighbours are clearly more alike if channels are read one after the other (or together: False).

    Only a hint, and None if unclear: it holds for pictures of things, and not for noise.
    """
    together, planar = (
        sum(_roughness(each.arranged(image)) for image in images)
        for each in (replace(shape, planar=False), replace(shape, planar=True))
    )
    if shape.channels == 1 or max(together, planar) * 0.8 <= min(together, planar):
        return None
    return planar < together


def _roughness(pixels: Values) -> float:
    """The mean difference of neighbours, across and down."""
    values = pixels.astype(np.float32)
    return float(sum(np.abs(np.diff(values, axis=axis)).mean() for axis in (0, 1)))


@dataclass(frozen=True)
class Fit:
    """One way to read raw bytes as an image."""

    shape: PixelShape
    value_bytes: int

    def __str__(self) -> str:
        return f"{self.shape} of {8 * self.value_bytes} bits"


def fits(length: int, shape: PixelShape | None, planar: bool) -> Iterator[Fit]:
    """The ways in which so many bytes can be an image: of a known shape, or a square."""
    for value_bytes in INTEGERS:
        count, rest = divmod(length, value_bytes)
        if rest:
            continue
        if shape is None:
            square = square_of(count, planar)
            if square is not None:
                yield Fit(square, value_bytes)
        elif count == shape.count:
            yield Fit(shape, value_bytes)
