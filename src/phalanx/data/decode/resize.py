"""Cropping and resizing: a view is padded where it leaves the image, cropped, resized and flipped.

native/resample.h and Pillow do the same arithmetic, bit for bit: along rows first, then along columns, each rounded to
8 bits. Pillow resizes one direction per call, because their order within one call depends on its version.
"""

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.data.base import Pixels, View
from phalanx.native.build import find_library

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # how far each filter reaches, in pixels of the result where it is smaller

# A box may overshoot the edge by a rounding error; that much is clipped, not padded.
TOLERANCE_PIXELS = 1e-3


def resize_into(pixels: Pixels, view: View, size: int, interpolation: str, pad_mode: str, out: Pixels) -> None:
    """Write the view of an image (height, width, channels) into `out` (size, size, channels)."""
    resize_all([pixels], [view], size, interpolation, pad_mode, out[None])


def resize_all(
    images: Sequence[Pixels], views: Sequence[View], size: int, interpolation: str, pad_mode: str, out: Pixels
) -> None:
    """The same for many images, into `out` (n, size, size, channels); native code does so without Python's lock."""
    native = native_resizer()
    if native is None:
        for pixels, view, target in zip(images, views, out, strict=True):
            resize_by_pillow(pixels, view, size, interpolation, pad_mode, target)
        return
    if not out.flags.c_contiguous:
        raise ValueError("native code writes one image after the other")
    count, channels = len(images), out.shape[-1]
    whole = [np.ascontiguousarray(image) for image in images]
    shapes = np.array([image.shape for image in whole], dtype=np.int32).reshape(count, 3)
    if np.any(shapes[:, 2] != channels) or len(views) != count or out.shape != (count, size, size, channels):
        raise ValueError(f"{count} images and {len(views)} views do not fit into {out.shape}")
    heights, widths = np.ascontiguousarray(shapes[:, 0]), np.ascontiguousarray(shapes[:, 1])
    boxes, flips = boxes_of(views), flips_of(views)
    done = native.resample_views(
        count,
        (ctypes.c_void_p * count)(*map(address, whole)),
        address(heights),
        address(widths),
        channels,
        address(boxes),
        address(flips),
        size,
        interpolation == "bicubic",
        pad_mode == "reflect",
        address(out),
    )
    if done < count:
        raise ValueError(f"{views[done]} does not fit an image of {heights[done]}×{widths[done]}")


def boxes_of(views: Sequence[View]) -> npt.NDArray[np.float64]:
    """(n, 4): top, left, height and width, as native code takes them."""
    return np.array([(view.top, view.left, view.height, view.width) for view in views], dtype=np.float64)


def flips_of(views: Sequence[View]) -> npt.NDArray[np.uint8]:
    return np.array([view.flip for view in views], dtype=np.uint8)


def address(array: npt.NDArray[np.generic]) -> int:
    """Where an array's memory begins."""
    return int(array.__array_interface__["data"][0])


@functools.cache
def native_resizer() -> ctypes.CDLL | None:
    library = find_library("resample", "Pillow").handle
    if library is not None:
        pointer, number = ctypes.c_void_p, ctypes.c_int
        library.resample_views.argtypes = (
            *(number, pointer, pointer, pointer, number, pointer),
            *(pointer, number, number, number, pointer),
        )
    return library


def resize_by_pillow(pixels: Pixels, view: View, size: int, interpolation: str, pad_mode: str, out: Pixels) -> None:
    """Pillow has images of one and of three channels; any other number is resized channel by channel."""
    width = pixels.shape[-1] if pixels.shape[-1] in (1, 3) else 1
    for low in range(0, pixels.shape[-1], width):
        part = pixels[:, :, low : low + width]
        image = Image.fromarray(np.ascontiguousarray(part if width == 3 else part[:, :, 0]))
        out[:, :, low : low + width] = framed(image, view, size, interpolation, pad_mode)


def framed(image: Image.Image, view: View, size: int, interpolation: str, pad_mode: str) -> Pixels:
    """The view of an image of mode L or RGB, as (size, size, channels)."""
    image, top, left = _covering(image, view, pad_mode)
    if is_copy(view, size):
        seen = image.crop((int(left), int(top), int(left) + size, int(top) + size))
    else:
        rows = _span(top, view.height, image.height, size, SUPPORT[interpolation])
        columns = _span(left, view.width, image.width, size, SUPPORT[interpolation])
        seen = image.crop((columns.low, rows.low, columns.high, rows.high))
        # Pillow widens its filter when shrinking (antialias), as torchvision and timm do on PIL images.
        method = RESAMPLING[interpolation]
        seen = seen.resize((size, seen.height), method, box=(columns.start, 0, columns.end, seen.height))
        seen = seen.resize((size, size), method, box=(0, rows.start, size, rows.end))
    pixels = np.frombuffer(seen.tobytes(), dtype=np.uint8).reshape(size, size, -1)
    return pixels[:, ::-1] if view.flip else pixels


def is_copy(view: View, size: int) -> bool:
    """Whether the view is whole pixels of the result's size, so that nothing needs resizing."""
    return view.height == size and view.width == size and view.top == int(view.top) and view.left == int(view.left)


class _Span(NamedTuple):
    """Pixels low … high that a filter reaches along one side, and the box's start and end, counted from `low`."""

    low: int
    high: int
    start: float
    end: float


def _span(start: float, extent: float, length: int, size: int, support: float) -> _Span:
    # In single precision, as Pillow takes them; a whole number less is then still exact.
    first, last = np.float32(max(start, 0.0)), np.float32(min(start + extent, length))
    reach = math.ceil(support * max(1.0, float(last - first) / size)) + 1
    low = max(0, math.floor(first) - reach)
    high = min(length, math.ceil(last) + reach)
    return _Span(low, high, float(first) - low, float(last) - low)


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
