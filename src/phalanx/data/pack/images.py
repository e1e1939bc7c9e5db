"""A sample prepared for a shard: its original bytes, or resized and encoded again, or its pixels."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.decode.images import EXIF_ORIENTATION, as_mode, broken_means_bad, open_image, orientation_of
from phalanx.data.decode.limits import USUAL_LIMITS, Limits
from phalanx.data.decode.resize import RESAMPLING
from phalanx.data.sources.arrays import ArraySource
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.raw import RawSource

QUALITY = 90  # default for photographs that are resized
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LOSSLESS = ("PNG", "BMP", "PPM", "GIF", "TIFF")


@dataclass(frozen=True)
class Treatment:
    """How images are prepared: the shorter side at most `resize`, encoded with `quality`."""

    resize: int | None
    quality: int | None
    channels: int  # of decoded pixels
    interpolation: str
    exif_orientation: bool  # whether decoded pixels follow the EXIF orientation

    def encoded(self, source: Labelled, index: int) -> bytes:
        """The compressed image: the original bytes if nothing has to change."""
        original = _original(source, index)
        if isinstance(original, bytes):
            if self.resize is None and self.quality is None:
                return original
            return self._encoded_again(open_image(original, _limits(source)), original)
        image = _image(original)
        smaller = self._smaller(image)
        return _png(smaller) if self.quality is None else _jpeg(smaller, self.quality)

    def pixels(self, source: Labelled, index: int) -> Pixels:
        """Decoded pixels (height, width, channels), decoded exactly."""
        original = _original(source, index)
        with broken_means_bad():
            if isinstance(original, bytes):
                stored = open_image(original, _limits(source))
                turn = UPRIGHT.get(orientation_of(stored)) if self.exif_orientation else None
                image = _decoded(stored, "L" if self.channels == 1 else "RGB")
                image = image if turn is None else image.transpose(turn)
            else:
                image = _image(original)
            smaller = self._smaller(image)
            return np.asarray(smaller).reshape(smaller.height, smaller.width, self.channels)

    def _encoded_again(self, image: Image.Image, original: bytes) -> bytes:
        with broken_means_bad():
            if self.resize is not None and min(image.size) <= self.resize:
                return original
            lossless = image.format in LOSSLESS and self.quality is None
            orientation = orientation_of(image)
            grey = image.mode in GREY_MODES or image.mode.startswith("I;16")
            smaller = self._smaller(_decoded(image, "L" if grey else "RGB"))
            return _png(smaller) if lossless else _jpeg(smaller, self.quality or QUALITY, orientation)

    def _smaller(self, image: Image.Image) -> Image.Image:
        size = smaller_size(image.size, self.resize)
        return image if size == image.size else image.resize(size, RESAMPLING[self.interpolation])


def smaller_size(size: tuple[int, int], resize: int | None) -> tuple[int, int]:
    """Both sides scaled until the shorter one is at most `resize`, rounded down as torchvision does."""
    short = min(size)
    return size if resize is None or short <= resize else (size[0] * resize // short, size[1] * resize // short)


def _original(source: Labelled, index: int) -> bytes | Pixels:
    """A sample as its source stores it."""
    if isinstance(source, EncodedSource):
        return source.encoded(index)
    if isinstance(source, RawSource):
        return source.pixels(index)
    if isinstance(source, ArraySource):
        pixels: Pixels = source.images[source.rows[index]]
        return pixels
    raise TypeError(f"samples of {type(source).__name__} cannot be packed")


def _limits(source: Labelled) -> Limits:
    return source.decoding.limits if isinstance(source, EncodedSource) else USUAL_LIMITS


def _decoded(image: Image.Image, mode: str) -> Image.Image:
    image.draft(mode, image.size)  # a JPEG's first component is its grey picture, as for the decoder
    return as_mode(image, mode)


def _image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])


def _png(image: Image.Image) -> bytes:
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _jpeg(image: Image.Image, quality: int, orientation: int = 1) -> bytes:
    """A JPEG: baseline, 4:2:0. Of the EXIF data only the orientation stays, since the pixels depend on it."""
    exif = Image.Exif()
    if orientation != 1:
        exif[EXIF_ORIENTATION] = orientation
    out = BytesIO()
    image.save(out, "JPEG", quality=quality, exif=exif)
    return out.getvalue()
