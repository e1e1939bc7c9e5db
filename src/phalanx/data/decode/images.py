"""Compressed image bytes → the pixels of views: JPEGs by native code where it can, everything else by Pillow.

Both give the same pixels, bit for bit, where both use the same libjpeg-turbo.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from phalanx.data.base import Pixels, View
from phalanx.data.decode.deep_images import eight_bits, is_deep
from phalanx.data.decode.gpu import GpuDecoder, frame
from phalanx.data.decode.jpeg import LEFT, DecodeSettings, JpegDecoder, find_decoder
from phalanx.data.decode.limits import USUAL_LIMITS, Limits
from phalanx.data.decode.ranges import OutOfRange
from phalanx.data.decode.resize import address, framed

EXIF_ORIENTATION = 0x0112
MIRRORED, UPSIDE_DOWN, SIDEWAYS = (
    (2, 3, 7, 8),
    (3, 4, 6, 7),
    (5, 6, 7, 8),
)  # what an orientation says about the stored pixels

# (positions in the batch, (n, 2) heights and widths) → a view of each
ViewsOf = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], list[View]]


class BadImage(Exception):
    """A sample that does not decode. The message says why."""


@dataclass(frozen=True)
class Decoding:
    """How compressed images become pixels.

    `exact` decodes a JPEG at its full size. Otherwise one is decoded at 1/2, 1/4 or 1/8 where the view stays at least
    as large as the result. With `gpu`, JPEGs are decoded there, at full size.

    EXIF rotation is left alone by default: the published accuracies of torchvision and timm
    come from loaders that leave it alone.
    """

    exact: bool = False
    exif_orientation: bool = False
    limits: Limits = USUAL_LIMITS
    gpu: GpuDecoder | None = None


FAST = Decoding()


class Target(NamedTuple):
    """The array to decode into (n, size, size, channels), the interpolation, and the padding outside of an image."""

    out: Pixels
    interpolation: str
    pad_mode: str


def decode(
    data: bytes,
    view_of: Callable[[int, int], View],
    size: int,
    channels: int,
    interpolation: str,
    pad_mode: str = "zero",
    decoding: Decoding = FAST,
) -> Pixels:
    """The view that `view_of(height, width)` chooses, as (size, size, channels). Raises BadImage.

    The format is recognised by content, not by name.
    """

    def views_of(positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> list[View]:
        return [view_of(int(sizes[0, 0]), int(sizes[0, 1]))]

    out: Pixels = np.empty((1, size, size, channels), dtype=np.uint8)
    if reason := decode_all([data], views_of, decoding, Target(out, interpolation, pad_mode))[0]:
        raise BadImage(reason)
    return out.reshape(size, size, channels)


def open_image(data: bytes, limits: Limits) -> Image.Image:
    """An image whose header is read, and whose pixels are not. Raises BadImage, also for one beyond the limits."""
    limits.raise_pillows()
    with broken_means_bad():
        try:
            image: Image.Image = Image.open(BytesIO(data))
        except Image.DecompressionBombError as error:
            pixels = re.search(r"(\d+) pixels", str(error))
            raise BadImage(limits.too_many_pixels(int(pixels[1])) if pixels else str(error)) from error
        if excess := limits.excess(image, data):
            raise BadImage(excess)
        return image


def format_of(data: bytes) -> str | None:
    """The format of a compressed image, by its header; None if it is not one."""
    try:
        with broken_means_bad(), Image.open(BytesIO(data)) as image:
            return image.format
    except BadImage:
        return None


def decode_all(data: Sequence[bytes], views_of: ViewsOf, decoding: Decoding, target: Target) -> list[str]:
    """Decode each image to its place in the target. Returns the error of each, empty for a good one."""
    reasons = [""] * len(data)
    if decoding.gpu is not None:
        done = decode_on_gpu(decoding.gpu, data, views_of, decoding, target)
        data = [b"" if place in done else each for place, each in enumerate(data)]
    else:
        done = set()
    decoder = find_decoder()
    rest = decode_natively(decoder, data, views_of, decoding, target) if decoder else range(len(data))
    rest = [place for place in rest if place not in done] if done else rest
    for position in rest:
        try:
            decode_by_pillow(data[position], position, views_of, decoding, target)
        except BadImage as error:
            reasons[position] = str(error)
    return reasons


def decode_on_gpu(
    decoder: GpuDecoder, data: Sequence[bytes], views_of: ViewsOf, decoding: Decoding, target: Target
) -> set[int]:
    """Decode the JPEGs within the limits together; returns their positions, or none if the GPU refuses one of them."""
    places = []
    for place, each in enumerate(data):
        if decoder.can(each):
            with suppress(BadImage):  # who decodes the others says what is wrong
                open_image(each, decoding.limits)
                places.append(place)
    images = decoder.pixels([data[place] for place in places], target.out.shape[3]) if places else None
    if images is None:
        return set()
    sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)
    views = views_of(np.array(places, dtype=np.int64), sizes)
    frame(images, views, target.interpolation, target.pad_mode, target.out, places)
    return set(places)


def decode_natively(
    decoder: JpegDecoder, data: Sequence[bytes], views_of: ViewsOf, decoding: Decoding, target: Target
) -> Sequence[int]:
    """Decode the images that native code can; returns the positions of the others."""
    out = target.out
    settings = DecodeSettings(
        out.shape[1],
        out.shape[3],
        bicubic=target.interpolation == "bicubic",
        reflect=target.pad_mode == "reflect",
        exact=decoding.exact,
        orient=decoding.exif_orientation,
        limits=decoding.limits,
    )
    sizes = decoder.sizes(data, settings)
    ours = np.flatnonzero(sizes[:, 0])
    positions = ours.tolist()
    if not positions:
        return range(len(data))
    views = views_of(ours, sizes[ours])
    start, step = address(out), out.strides[0]
    made = decoder.decode([data[i] for i in positions], views, settings, [start + i * step for i in positions])
    done = set(ours[made != LEFT].tolist())
    return [i for i in range(len(data)) if i not in done]


def decode_by_pillow(data: bytes, position: int, views_of: ViewsOf, decoding: Decoding, target: Target) -> None:
    if not data:
        raise BadImage("it is empty (0 bytes)")
    size, mode = target.out.shape[1], "L" if target.out.shape[3] == 1 else "RGB"
    image = open_image(data, decoding.limits)
    orientation = orientation_of(image) if decoding.exif_orientation else 1
    height, width = image.size if orientation in SIDEWAYS else image.size[::-1]
    # Outside of the guard: a mistake in a framing is ours, not the image's.
    view = views_of(np.array([position]), np.array([[height, width]]))[0]
    with broken_means_bad():
        stored = _stored(view, orientation, image.height, image.width)
        stored = _shrink_while_decoding(image, mode, stored, size, decoding.exact)
        pixels = framed(as_mode(image, mode), stored, size, target.interpolation, target.pad_mode)
        target.out[position] = _turned(pixels, orientation, view.flip)


def orientation_of(image: Image.Image) -> int:
    """The EXIF orientation, 1 … 8; 1 where it is missing or invalid."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))
        orientation = exif.get(EXIF_ORIENTATION, 1)
    except Exception:  # as many kinds as there are ways to damage it
        return 1
    return orientation if orientation in range(1, 9) else 1


def _stored(view: View, orientation: int, height: int, width: int) -> View:
    """A view of the upright image, in coordinates of the stored image."""
    top, left, tall, wide = view.top, view.left, view.height, view.width
    if orientation in SIDEWAYS:
        top, left, tall, wide = left, top, wide, tall
    if orientation in MIRRORED:
        left = width - left - wide
    if orientation in UPSIDE_DOWN:
        top = height - top - tall
    return View(top, left, tall, wide)


def _turned(pixels: Pixels, orientation: int, flip: bool) -> Pixels:
    """Stored pixels, turned upright."""
    pixels = pixels[:: -1 if orientation in UPSIDE_DOWN else 1, :: -1 if orientation in MIRRORED else 1]
    pixels = pixels.swapaxes(0, 1) if orientation in SIDEWAYS else pixels
    return pixels[:, ::-1] if flip else pixels


@contextmanager
def broken_means_bad() -> Iterator[None]:
    """Turn every exception of Pillow into BadImage: broken files raise all kinds of them in its plugins."""
    try:
        yield
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise BadImage("it is not an image of a known format") from error
    except Exception as error:
        raise BadImage(str(error) or type(error).__name__) from error


def _shrink_while_decoding(image: Image.Image, mode: str, view: View, size: int, exact: bool) -> View:
    """Have a JPEG decoded at 1/2, 1/4 or 1/8 where the view stays large enough; returns the view at that scale.

    A view may exceed the image, which keeps at least one pixel: Pillow never shrinks it away.
    """
    shorter, by = min(view.height, view.width), 1
    while not exact and by < 8 and shorter / (2 * by) >= size and min(image.size) >= 2 * by:
        by *= 2
    # Also without scaling: for a grey image, the first component of a JPEG is enough.
    if image.draft(mode, (max(1, image.width // by), max(1, image.height // by))) is None:
        return view  # not a JPEG
    return View(view.top / by, view.left / by, view.height / by, view.width / by, view.flip)


def as_mode(image: Image.Image, mode: str) -> Image.Image:
    """Grey or colour, 8 bits. Transparency is dropped, not composited: `convert("RGB")`, as in torchvision and timm."""
    if is_deep(image):
        try:
            image = eight_bits(image)
        except OutOfRange as error:
            raise BadImage(str(error)) from error
    if image.mode == "La":
        image = image.convert("LA")  # Pillow converts premultiplied grey to nothing else
    image.info.pop("transparency", None)  # or Pillow warns, image by image, that a palette's transparency is lost
    return image if image.mode == mode else image.convert(mode)
