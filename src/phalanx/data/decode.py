"""Compressed image bytes → the pixels of a view. The one place to put a faster decoder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from phalanx.data.base import Pixels, View
from phalanx.data.resize import REDUCING_GAP, framed


class BadImage(Exception):
    """A sample that does not decode. The message says why."""


def decode(
    data: bytes,
    view_of: Callable[[int, int], View],
    size: int,
    channels: int,
    interpolation: str,
    pad_mode: str = "zero",
) -> Pixels:
    """The view that `view_of(height, width)` chooses, as (size, size, channels); BadImage where there is none.

    The content decides about the format, not the name of the file. EXIF rotation is left alone: the published
    accuracies of torchvision and timm come from loaders that leave it alone.
    """
    if not data:
        raise BadImage("it is empty (0 bytes)")
    mode = "L" if channels == 1 else "RGB"
    with _broken_means_bad():
        image: Image.Image = Image.open(BytesIO(data))
    # Outside of the guard: a mistake in a framing is ours, not the image's.
    view = view_of(image.height, image.width)
    with _broken_means_bad():
        view = _shrink_while_decoding(image, mode, view, size)
        return framed(_as_mode(image, mode), view, size, interpolation, pad_mode)


@contextmanager
def _broken_means_bad() -> Iterator[None]:
    """Turns whatever Pillow raises into BadImage. Broken files leave its plugins by every kind of exception."""
    try:
        yield
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise BadImage("it is not an image of a known format") from error
    except Exception as error:
        raise BadImage(str(error) or type(error).__name__) from error


def _shrink_while_decoding(image: Image.Image, mode: str, view: View, size: int) -> View:
    """Lets a JPEG be decoded at 1/2, 1/4 or 1/8 where the view stays large enough; the view in its new pixels."""
    room = min(view.height, view.width) / (size * REDUCING_GAP)
    wanted = (max(1, int(image.width / room)), max(1, int(image.height / room))) if room > 1 else image.size
    full_width = image.width
    drafted = image.draft(mode, wanted)  # None: not a JPEG
    if drafted is None:
        return view
    scale = drafted[1][2] / full_width
    return View(view.top * scale, view.left * scale, view.height * scale, view.width * scale, view.flip)


def _as_mode(image: Image.Image, mode: str) -> Image.Image:
    """Grey or colour, 8 bits. Transparency is dropped, not composited: `convert("RGB")`, as in torchvision and timm."""
    if image.mode.startswith("I;16"):
        # Pillow would clip 16-bit grey at 255, which leaves a white image.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image.info.pop("transparency", None)  # or Pillow warns, image by image, that a palette's transparency is lost
    return image if image.mode == mode else image.convert(mode)
