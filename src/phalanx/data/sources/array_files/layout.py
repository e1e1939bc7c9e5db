"""How the images of an array lie in memory: channels last or first, grey without channels, or flat."""

import math
from dataclasses import dataclass
from typing import Literal

from phalanx.data.sources.array_files.entry import ArrayEntry, Values
from phalanx.errors import UserError

CHANNELS = (1, 3)


@dataclass(frozen=True)
class Layout:
    """The size of an image, and the order of its values."""

    height: int
    width: int
    channels: int
    order: Literal["as it is", "channels first", "grey", "flat"] = "as it is"

    def arranged(self, values: Values) -> Values:
        """Values (n, …) as (n, height, width, channels), where possible without a copy."""
        if self.order == "channels first":
            return values.transpose(0, 2, 3, 1)
        return values.reshape(-1, self.height, self.width, self.channels)

    def __str__(self) -> str:
        return f"{self.height}×{self.width}×{self.channels}"


def layout_of(shape: tuple[int, ...]) -> Layout | None:
    """The layout of images of this shape, without the number of images; None if they are no images."""
    if not all(shape):
        return None
    if len(shape) == 3 and shape[2] in CHANNELS:
        return Layout(shape[0], shape[1], shape[2])
    if len(shape) == 3 and shape[0] in CHANNELS:
        return Layout(shape[1], shape[2], shape[0], "channels first")
    if len(shape) == 2 and min(shape) > 1:
        return Layout(shape[0], shape[1], 1, "grey")
    side = math.isqrt(shape[0]) if len(shape) == 1 else 0
    return Layout(side, side, 1, "flat") if side > 1 and side * side == shape[0] else None


def checked_layout(entry: ArrayEntry) -> Layout:
    """The layout of an array that the user or its name calls images."""
    found = layout_of(entry.shape[1:])
    if found is None:
        raise UserError(
            f"the array {entry.name} of {entry.file.path} does not hold images",
            why=f"it is {entry}: {_complaint(entry.shape[1:])}",
            remedy="save images as (n, height, width), (n, height, width, 3) or (n, 3, height, width); "
            "or name another array with data.image_field",
        )
    return found


def _complaint(shape: tuple[int, ...]) -> str:
    if not all(shape):
        return "it is empty"
    if len(shape) == 3 and min(shape[0], shape[2]) <= 4:
        return "an image has 1 or 3 channels"
    if len(shape) == 3:
        return f"{'×'.join(map(str, shape))} is a volume, and an image has 1 or 3 channels"
    if len(shape) == 1 and math.isqrt(shape[0] // 3) ** 2 * 3 == shape[0]:
        return f"{shape[0]:,} values are three channels, and nothing says whether they come one after another"
    if len(shape) == 1:
        return f"{shape[0]:,} values are not a square"
    return f"a sample has {len(shape)} dimensions"
