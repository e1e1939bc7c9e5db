"""One compressed image: formats, modes, views, and everything that can be wrong with it."""

import struct
import warnings
import zlib
from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from phalanx.data.base import Pixels, View
from phalanx.data.decode.images import BadImage, decode
from tests.data.samples import REAL, image_bytes, needs_real_data, noise, smooth


def whole(height: int, width: int) -> View:
    return View(0, 0, height, width)


def decoded(data: bytes, size: int = 16, channels: int = 3) -> Pixels:
    return decode(data, whole, size, channels, "bilinear")


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_come_back_exactly(form: str) -> None:
    pixels = noise(16, 16, 3)
    np.testing.assert_array_equal(decoded(image_bytes(pixels, form)), pixels)


@pytest.mark.parametrize(
    ("form", "mode"),
    [("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("WEBP", "RGBA"), ("PNG", "RGBA"), ("PNG", "P")],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_forms_and_modes(form: str, mode: str, channels: int) -> None:
    pixels = smooth(32, 32)
    result = decoded(image_bytes(pixels, form, mode), 32, channels)
    expected = pixels if channels == 3 else np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    assert result.shape == (32, 32, channels)
    assert np.abs(result.astype(int) - expected).mean() < (16 if mode == "P" else 4)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_grey_becomes_three_equal_channels(form: str) -> None:
    result = decoded(image_bytes(smooth(32, 32), form, "L"), 32)
    assert np.all(result[..., 0] == result[..., 1])
    assert np.all(result[..., 0] == result[..., 2])


def test_sixteen_bits_keep_their_upper_eight() -> None:
    values = (np.arange(256, dtype=np.uint16).reshape(16, 16) << 8) + 77
    out = BytesIO()
    Image.fromarray(values).save(out, "PNG")
    np.testing.assert_array_equal(decoded(out.getvalue())[..., 1], np.arange(256).reshape(16, 16))


def test_transparency_is_dropped_not_composited() -> None:
    pixels = np.dstack([noise(16, 16, 3), np.zeros((16, 16), dtype=np.uint8)])
    np.testing.assert_array_equal(decoded(image_bytes(pixels)), pixels[..., :3])


def test_a_transparent_palette_gives_no_warning() -> None:
    out = BytesIO()
    Image.fromarray(smooth(16, 16)).convert("P").save(out, "PNG", transparency=bytes(range(200)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decoded(out.getvalue()).shape == (16, 16, 3)


def test_the_view_is_chosen_by_height_and_width() -> None:
    pixels = noise(20, 30, 3)
    seen = []

    def view_of(height: int, width: int) -> View:
        seen.append((height, width))
        return View(2, 5, 8, 8, flip=True)

    result = decode(image_bytes(pixels), view_of, 8, 3, "bilinear")
    assert seen == [(20, 30)]
    np.testing.assert_array_equal(result, pixels[2:10, 5:13][:, ::-1])


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_large_jpeg_is_shrunk_while_decoding_and_looks_the_same(interpolation: str) -> None:
    pixels = smooth(1003, 1501)
    view = View(101, 202, 800, 900)
    result = decode(image_bytes(pixels, "JPEG"), lambda height, width: view, 32, 3, interpolation)
    box = (202, 101, 1102, 901)
    expected = Image.fromarray(pixels).resize((32, 32), Image.Resampling[interpolation.upper()], box=box)
    assert np.abs(result.astype(int) - np.asarray(expected)).max() <= 6


def test_a_view_outside_of_the_image_sees_the_padding() -> None:
    data = image_bytes(np.full((8, 8, 3), 90, dtype=np.uint8))
    result = decode(data, lambda height, width: View(-4, -4, 8, 8), 8, 3, "bilinear")
    assert np.all(result[:4] == 0)
    assert np.all(result[4:, 4:] == 90)
    assert np.all(decode(data, lambda height, width: View(-4, -4, 8, 8), 8, 3, "bilinear", "reflect") == 90)


def bomb() -> bytes:
    """A PNG of a few bytes that claims 60,000 × 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 1000, "not an image"),
        (b"<html>404 not found</html>", "not an image"),
        (image_bytes(noise(64, 64, 3), "JPEG")[:4000], "truncated"),
        (image_bytes(noise(64, 64, 3), "JPEG")[:500], "Truncated"),
        (image_bytes(noise(64, 64, 3), "PNG")[:4000], "truncated"),
        (image_bytes(noise(64, 64, 3), "WEBP")[:1000], ""),
        (image_bytes(noise(64, 64, 3), "PNG")[:20], ""),
        (bomb(), "3,600,000,000 pixels; more than data.max_pixels=178956970"),
    ],
)
def test_a_broken_image_is_bad_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        decoded(data)
    assert str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.filterwarnings("ignore")  # Pillow warns about what it skips
def test_damage_anywhere_is_bad_or_decodes_but_never_anything_else() -> None:
    rng = np.random.default_rng(0)
    for form in ("JPEG", "PNG", "WEBP", "GIF", "TIFF"):
        data = image_bytes(smooth(24, 24), form)
        for _ in range(40):
            damaged = bytearray(data)
            for place in rng.integers(0, len(data), 4):
                damaged[place] = rng.integers(0, 256)
            with suppress(BadImage):
                assert decoded(bytes(damaged)).shape == (16, 16, 3)


def test_a_mistake_in_a_framing_is_not_blamed_on_the_image() -> None:
    def view_of(height: int, width: int) -> View:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decode(image_bytes(smooth(8, 8)), view_of, 8, 3, "bilinear")


@needs_real_data
def test_pets_whose_content_is_not_what_the_ending_says() -> None:
    pngs = [path for path in sorted((REAL / "pets").rglob("*.jpg")) if path.read_bytes().startswith(b"\x89PNG")]
    assert len(pngs) == 4
    for path in pngs:
        assert decoded(path.read_bytes(), 64).std() > 10
