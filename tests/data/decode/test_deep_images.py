"""Files with more than 8 bits, floats, and unusual modes: by a stated rule, and never just black or white."""

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage, as_mode, decode
from tests.data.decode.test_images import whole
from tests.data.samples import noise, smooth

WIDE = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257


def decoded(data: bytes, channels: int = 1) -> Pixels:
    return decode(data, whole, 16, channels, "bilinear")[..., 0]


def saved(values: npt.NDArray[Any], form: str, **options: Any) -> bytes:
    out = BytesIO()
    Image.fromarray(values).save(out, form, **options)
    return out.getvalue()


def png(values: npt.NDArray[Any]) -> bytes:
    """A PNG of 16 bits a channel, grey or colour, with or without alpha, written from its specification."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(values: npt.NDArray[Any], sample_format: int, order: Any = "<") -> bytes:
    """A TIFF with one strip, written from its specification. Formats: 1 unsigned, 2 signed, 3 floating-point."""
    values = values.astype(values.dtype.newbyteorder(order))
    entries = {
        256: values.shape[1],
        257: values.shape[0],
        258: 8 * values.dtype.itemsize,
        259: 1,
        262: 1,
        273: 8 + 2 + 10 * 12 + 4,
        277: 1,
        278: values.shape[0],
        279: values.nbytes,
        339: sample_format,
    }
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, 8) + struct.pack(f"{order}H", len(entries))
    fields = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in entries.items())
    return head + fields + bytes(4) + values.tobytes()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "data",
    [
        png(WIDE[..., None]),
        saved(WIDE, "TIFF"),
        saved(WIDE, "JPEG2000"),
        tiff(WIDE, 1, "<"),
        tiff(WIDE, 1, ">"),
        b"P5 16 16 65535\n" + WIDE.astype(">u2").tobytes(),
    ],
    ids=["PNG", "TIFF", "JPEG 2000", "TIFF, little", "TIFF, big", "PGM"],
)
def test_sixteen_bits_give_their_upper_eight(data: bytes, channels: int) -> None:
    np.testing.assert_array_equal(decoded(data, channels), WIDE >> 8)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_grey_and_colour_of_sixteen_bits_follow_one_rule(channels: int) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (16, 16, channels), dtype=np.uint16)
    found = decode(png(values), whole, 16, 3, "bilinear")
    expected = values[..., : channels - 1 if channels in (2, 4) else channels] >> 8
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (16, 16, 3)))


def test_a_dark_image_stays_dark() -> None:
    """12 bits in a file of 16 use a sixteenth of its range; image by image nothing says that they are all."""
    assert decoded(png((WIDE >> 4)[..., None])).max() == 15


def test_twelve_bits_that_the_file_tells() -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 16
    pairs = values.reshape(-1, 2).astype(int)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1)
    data = bytearray(tiff(values, 1)[: -values.nbytes])
    place = data.find(struct.pack("<HHI", 258, 4, 1))
    data[place + 8 : place + 12] = struct.pack("<I", 12)
    place = data.find(struct.pack("<HHI", 279, 4, 1))
    data[place + 8 : place + 12] = struct.pack("<I", packed.size)
    place = data.find(struct.pack("<HHI", 339, 4, 1))
    data[place : place + 2] = struct.pack("<H", 65000)  # Pillow wants no format with 12 bits
    try:
        Image.open(BytesIO(bytes(data) + packed.astype(np.uint8).tobytes()))
    except OSError:
        pytest.skip("this Pillow reads no TIFF of 12 bits")
    np.testing.assert_array_equal(decoded(bytes(data) + packed.astype(np.uint8).tobytes()), values >> 4)


@pytest.mark.parametrize(
    ("values", "sample_format", "expected"),
    [
        (WIDE.astype(np.int32), 2, WIDE >> 8),
        (WIDE.astype(np.uint32), 1, WIDE >> 8),
        ((WIDE >> 1).astype(np.int16), 2, WIDE >> 9),
        ((WIDE >> 8).astype(np.int32), 2, WIDE >> 8),
        ((WIDE / 65535).astype(np.float32), 3, WIDE // 257),
        ((WIDE / 257).astype(np.float32), 3, WIDE // 257),
    ],
    ids=["int32", "uint32", "int16", "int32 of 8 bits", "floats 0 … 1", "floats 0 … 255"],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_wide_integers_and_floats_of_tiff(values: Any, sample_format: int, expected: Any, order: str) -> None:
    order = "<" if values.dtype == np.uint32 else order  # Pillow reads no others
    np.testing.assert_array_equal(decoded(tiff(values, sample_format, order)), expected)


@pytest.mark.parametrize(
    ("values", "sample_format", "shown"),
    [
        (WIDE.astype(np.int32) * 3, 2, "0 … 196,605"),
        (WIDE.astype(np.int16) - 5, 2, "-"),
        (WIDE.astype(np.float32), 3, "0 … 6.554e\\+04"),
        (-(WIDE / 65535).astype(np.float32), 3, "-1 … 0"),
        (np.where(WIDE == 257, np.nan, 0.5).astype(np.float32), 3, "nan"),
    ],
)
def test_other_ranges_are_bad_images(values: Any, sample_format: int, shown: str) -> None:
    with pytest.raises(BadImage, match=f"its values are .*{shown}"):
        decoded(tiff(values, sample_format))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "La", "P", "PA", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV"])
@pytest.mark.parametrize("to", ["L", "RGB"])
def test_modes_are_converted_as_pillow_does(mode: str, to: str) -> None:
    """Alpha is dropped, whatever it hides."""
    image = Image.fromarray(smooth(16, 16))
    steps = {"LA": "RGBA", "PA": "RGBA", "La": "LA", "RGBa": "RGBA"}
    image = image.convert(steps[mode]) if mode in steps else image
    image = image.convert("P").convert("PA") if mode == "PA" else image.convert(mode)
    expected = image.convert({"La": "LA", "RGBa": "RGBA"}.get(mode, to)).convert(to)
    found = as_mode(image.copy(), to)
    assert found.mode == to
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_bits_are_black_and_white() -> None:
    bits = noise(16, 16) > 127
    out = BytesIO()
    Image.fromarray(bits).save(out, "PNG")
    np.testing.assert_array_equal(decoded(out.getvalue()), bits * np.uint8(255))


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP"])
def test_the_first_frame_of_an_animation(form: str) -> None:
    frames = [Image.fromarray(np.full((16, 16, 3), level, dtype=np.uint8)) for level in (40, 200)]
    out = BytesIO()
    options = {"lossless": True} if form == "WEBP" else {}
    frames[0].save(out, form, save_all=True, append_images=frames[1:], **options)
    assert np.unique(decoded(out.getvalue(), 3)).tolist() == [40]


def test_transparent_palettes_of_gifs_show_their_colour() -> None:
    image = Image.fromarray(smooth(16, 16)).convert("P")
    expected = np.asarray(image.convert("RGB"))[..., 0]
    out = BytesIO()
    image.save(out, "GIF", transparency=image.getpixel((3, 3)))
    np.testing.assert_array_equal(decoded(out.getvalue(), 3), expected)
