"""Pixel values wider than 8 bits, and floats, become 0 … 255 by one stated rule for a whole dataset.

| type | values | becomes |
| --- | --- | --- |
| uint8 | 0 … 255 | as it is |
| bool | false, true | 0, 255 |
| other integers | 0 … 255 in all images | as they are |
| uint16, int16 | beyond 255 | value × 255 / the type's largest (65,535 → 255) |
| wider integers | 0 … 65,535 | value × 255 / 65,535 |
| floats | 0 … 1 | value × 255 |
| floats | −1 … 1 | (value + 1) / 2 × 255 |
| floats | 0 … 255 | as they are |

Results are rounded to the nearest. Anything else is refused. The range is decided once, from some images of a dataset:
image by image, a dark one would come out bright. For one image alone, `whole_range` gives that of its type.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.data.base import Pixels

HALF_A_LEVEL = 0.5 / 255  # floats may miss their range by rounding, as after a resize


class OutOfRange(ValueError):
    """Values that the rule does not cover. The message says which."""


@dataclass(frozen=True)
class Scale:
    """How stored values become 0 … 255: `low` becomes 0 and `high` 255."""

    low: float
    high: float

    @property
    def is_identity(self) -> bool:
        return (self.low, self.high) == (0, 255)

    def __str__(self) -> str:
        if self.is_identity:
            return "values 0 … 255"
        return f"values {_short(self.low)} … {_short(self.high)} scaled to 0 … 255"

    def apply(self, values: npt.NDArray[np.generic]) -> Pixels:
        """The values as pixels. Raises OutOfRange if some are outside of the range."""
        if values.dtype == np.uint8 and self.is_identity:
            return values.view(np.ndarray)
        low, high = range_of([values])
        margin = HALF_A_LEVEL * (self.high - self.low) if values.dtype.kind == "f" else 0
        if not self.low - margin <= low <= high <= self.high + margin:  # also if there is a NaN
            raise OutOfRange(
                f"its values are {_short(low)} … {_short(high)}, and those of the dataset {_short(self.low)} … "
                f"{_short(self.high)}"
            )
        # 32-bit floats hold the integers of 16 bits exactly.
        scaled: npt.NDArray[np.floating] = values.astype(np.float64 if values.dtype.itemsize > 4 else np.float32)
        if not self.is_identity:
            scaled = (scaled - self.low) * (255 / (self.high - self.low))
        pixels: Pixels = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
        return pixels


def scale_of(dtype: npt.DTypeLike, low: float, high: float) -> Scale:
    """The rule for values of a type that lie between `low` and `high`. Raises OutOfRange if there is none."""
    kind = np.dtype(dtype)
    if kind == np.uint8:
        return Scale(0, 255)
    if kind == np.bool_:
        return Scale(0, 1)
    if kind.kind == "f":
        return _scale_of_floats(low, high)
    if kind.kind in "iu" and low >= 0:
        largest = float(np.iinfo(kind).max) if kind.itemsize <= 2 else 65535.0
        if high <= 255:
            return Scale(0, 255)
        if high <= largest:
            return Scale(0, largest)
    raise OutOfRange(f"values of type {kind.name} between {_short(low)} and {_short(high)} are not known as pixels")


def whole_range(dtype: npt.DTypeLike) -> tuple[float, float]:
    """The range of an integer type: for an image that is alone, whose values say nothing about others."""
    kind = np.dtype(dtype)
    return (0, 1) if kind == np.bool_ else (0, float(np.iinfo(kind).max))


def range_of(arrays: Iterable[npt.NDArray[np.generic]]) -> tuple[float, float]:
    """The smallest and largest value of some images; NaN if one is not a number, (0, 0) without any."""
    ends = [(float(array.min()), float(array.max())) for array in arrays if array.size]
    if not ends:
        return 0.0, 0.0
    lows, highs = zip(*ends, strict=True)
    return float(np.min(lows)), float(np.max(highs))


def _scale_of_floats(low: float, high: float) -> Scale:
    for bottom, top in ((0, 1), (-1, 1), (0, 255)):
        margin = HALF_A_LEVEL * (top - bottom)
        if bottom - margin <= low <= high <= top + margin:
            return Scale(bottom, top)
    raise OutOfRange(
        f"floats between {_short(low)} and {_short(high)} are not known as pixels: 0 … 1, −1 … 1 and 0 … 255 are"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value if np.isfinite(value) else 0) else f"{value:.4g}"
