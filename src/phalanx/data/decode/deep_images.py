"""Grey image files with more than 8 bits, and floats, as 8 bits. Pillow alone would clip them to white or black.

The rule sees one file and nothing else, so that a sample is the same alone and in any dataset:

| file | becomes |
| --- | --- |
| 9 to 16 bits (PNG, TIFF, PGM, JPEG 2000) | its upper 8 bits, as Pillow reads colour files of 16 bits a channel |
| TIFF of 32 bits, or 16 with a sign: 0 … 255 | as it is |
| the same: up to 65,535 | value // 256 |
| floats 0 … 1 | value × 255, rounded |
| floats 0 … 255 | rounded |

An image with other values is bad.
"""

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.decode.ranges import OutOfRange, Scale, range_of

BITS_PER_SAMPLE = 258  # a tag of TIFF
SIXTEEN_BITS = ("PNG", "PPM")  # formats whose wide integers are always of 16 bits


def is_deep(image: Image.Image) -> bool:
    """Whether an image has wider values than 8 bits, which are still to be scaled."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def eight_bits(image: Image.Image) -> Image.Image:
    """The same image with 8 bits. Raises OutOfRange for values that no rule covers."""
    values = np.asarray(image)
    if image.mode == "F":
        return Image.fromarray(_from_floats(values))
    shift = _shift(image, values)
    low, high = range_of([values])
    if low < 0 or high > (256 << shift) - 1:
        raise OutOfRange(f"its values are {low:,.0f} … {high:,.0f}, and 0 … {(256 << shift) - 1:,} are expected")
    return Image.fromarray((values >> shift).astype(np.uint8))


def _shift(image: Image.Image, values: npt.NDArray[np.integer]) -> int:
    """How many of the lower bits are left out."""
    tags = getattr(image, "tag_v2", {})
    bits = int(tags.get(BITS_PER_SAMPLE, (16,))[0])
    if image.mode != "I":
        return min(max(bits, 8), 16) - 8
    if image.format in SIXTEEN_BITS or int(values.max(initial=0)) > 255:
        return 8
    return 0


def _from_floats(values: npt.NDArray[np.floating]) -> Pixels:
    low, high = (end + 0.0 for end in range_of([values]))  # without -0
    for scale in (Scale(0, 1), Scale(0, 255)):
        try:
            return scale.apply(values)
        except OutOfRange:
            continue
    raise OutOfRange(f"its values are floats {low:.4g} … {high:.4g}, and 0 … 1 or 0 … 255 are expected")
