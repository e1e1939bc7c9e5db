"""Names as images: Pillow draws what matplotlib cannot, such as colour emoji, and captions of contact sheets."""

import functools

from PIL import Image, ImageDraw, ImageFont

from phalanx.observe.fonts import Font, Lettering

_BITMAP_SIZES = (109, 128, 136, 160, 96, 72, 64, 48, 32, 20)  # pixels; fonts of bitmaps have a few of these
Colour = tuple[int, int, int]


def text_image(name: str, lettering: Lettering, size: float, colour: Colour) -> Image.Image:
    """The name on a transparent ground, as wide as its letters, `size` pixels to the em. All are of one height."""
    parts = [_run_image(font, text, size, colour) for font, text in lettering.runs(name)]
    whole = Image.new("RGBA", (max(1, sum(part.width for part in parts)), _height(size)), (*colour, 0))
    left = 0
    for part in parts:
        whole.alpha_composite(part, (left, 0))
        left += part.width
    return whole


def _height(size: float) -> int:
    return round(1.5 * size)


def _baseline(size: float) -> int:
    return round(1.1 * size)


def _run_image(font: Font, text: str, size: float, colour: Colour) -> Image.Image:
    """Text of one font."""
    if not font.outlines:
        return _bitmaps_image(font, text, size)
    drawn = _opened(font, size)
    image = Image.new("RGBA", (max(1, round(drawn.getlength(text))), _height(size)), (*colour, 0))
    ImageDraw.Draw(image).text((0, _baseline(size)), text, (*colour, 255), drawn, anchor="ls", embedded_color=True)
    return image


def _bitmaps_image(font: Font, text: str, size: float) -> Image.Image:
    """Colour emoji, drawn in their own size and scaled: a little larger than letters, and a little below their line."""
    drawn = _opened_bitmaps(font)
    ascent, descent = drawn.getmetrics()
    own = Image.new("RGBA", (max(1, round(drawn.getlength(text))), ascent + descent), (0, 0, 0, 0))
    ImageDraw.Draw(own).text((0, ascent), text, (0, 0, 0, 255), drawn, anchor="ls", embedded_color=True)
    high = round(1.15 * size)
    scaled = own.resize((max(1, round(own.width * high / own.height)), high), Image.Resampling.BOX)
    image = Image.new("RGBA", (scaled.width, _height(size)), (0, 0, 0, 0))
    image.alpha_composite(scaled, (0, _baseline(size) + round(0.2 * size) - high))
    return image


@functools.lru_cache(64)
def _opened(font: Font, size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font.path, size, index=font.face)


@functools.cache
def _opened_bitmaps(font: Font) -> ImageFont.FreeTypeFont:
    for size in _BITMAP_SIZES:
        try:
            return ImageFont.truetype(font.path, size, index=font.face)
        except OSError:  # it has no bitmaps of this size
            continue
    raise OSError(f"{font.path} has bitmaps of no usual size")
