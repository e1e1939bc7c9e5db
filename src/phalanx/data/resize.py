"""The view of one image at the wanted size: padded where it leaves the image, cropped, resized, flipped."""

import math

import numpy as np
from PIL import Image

from phalanx.data.base import Pixels, View

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# A box may overshoot the edge by a rounding error; that much is clipped, not padded.
TOLERANCE_PIXELS = 1e-3

# Shrinking by more than twice this goes through a cheap integer reduction first. Pillow calls 3 "indistinguishable
# in most cases" from resampling everything, and 2 already close: only boxes of four times the size are touched.
REDUCING_GAP = 2.0


def framed(image: Image.Image, view: View, size: int, interpolation: str, pad_mode: str) -> Pixels:
    """What the view sees of an image of mode L or RGB, as (size, size, channels)."""
    image, top, left = _covering(image, view, pad_mode)
    if is_copy(view, size):
        seen = image.crop((int(left), int(top), int(left) + size, int(top) + size))
    else:
        right, bottom = min(left + view.width, image.width), min(top + view.height, image.height)
        box = (max(left, 0.0), max(top, 0.0), right, bottom)
        # Pillow widens its filter when shrinking (antialias), as torchvision and timm do on PIL images.
        seen = image.resize((size, size), RESAMPLING[interpolation], box=box, reducing_gap=REDUCING_GAP)
    pixels = np.frombuffer(seen.tobytes(), dtype=np.uint8).reshape(size, size, -1)
    return pixels[:, ::-1] if view.flip else pixels


def is_copy(view: View, size: int) -> bool:
    """Whether the view is whole pixels of the wanted size, so that nothing needs resizing."""
    return view.height == size and view.width == size and view.top == int(view.top) and view.left == int(view.left)


def _covering(image: Image.Image, view: View, pad_mode: str) -> tuple[Image.Image, float, float]:
    """The image padded until it covers the view, and the view's (top, left) in it."""
    above, before = _overhang(-view.top), _overhang(-view.left)
    below = _overhang(view.top + view.height - image.height)
    after = _overhang(view.left + view.width - image.width)
    if not (above or before or below or after):
        return image, view.top, view.left
    if pad_mode == "zero":
        image = image.crop((-before, -above, image.width + after, image.height + below))
    else:
        pixels = np.asarray(image)
        edges = ((above, below), (before, after), (0, 0))[: pixels.ndim]
        image = Image.fromarray(np.pad(pixels, edges, mode="reflect"))
    return image, view.top + above, view.left + before


def _overhang(pixels: float) -> int:
    return math.ceil(pixels) if pixels > TOLERANCE_PIXELS else 0
