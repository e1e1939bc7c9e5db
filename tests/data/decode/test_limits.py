"""Images that would take too long or too much memory: refused at once, with the same reason by either decoder."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from phalanx.commands.data_verify import verify_data
from phalanx.data.base import View
from phalanx.data.decode.images import BadImage, Decoding, Target, decode_all, decode_by_pillow
from phalanx.data.decode.jpeg import BY_LIBRARY, LEFT, DecodeSettings
from phalanx.data.decode.limits import Limits, count_scans
from phalanx.data.decode.resize import address
from phalanx.data.order import Indices
from phalanx.data.pack.images import Treatment
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.folders import open_class_folders
from tests.data.jpegs import jpeg, native, oriented, photograph
from tests.data.samples import image_bytes, noise

END = b"\xff\xd9"


def with_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan is repeated until there are `count`."""
    data = jpeg(photograph(24, 32), progressive=True)
    last = data[data.rindex(b"\xff\xda") : -len(END)]
    return data[: -len(END)] + last * (count - count_scans(data)) + END


def with_a_scan_for_each_coefficient() -> bytes:
    """A progressive JPEG of 65 scans with nothing wrong about it: each coefficient comes by itself, and is 0."""
    data = jpeg(np.full((24, 32, 3), 90, dtype=np.uint8), "L", progressive=True)
    first = data[: data.index(b"\xff\xc4", data.index(b"\xff\xda"))]
    table = b"\xff\xc4\0\x14\x10\1" + bytes(15) + b"\0"  # one code of one bit: the block ends
    spans = [(0, 0, 0x10), *((k, k, 0) for k in range(1, 64))]  # the last bit of the first coefficient, then the others
    scans = (b"\xff\xda\0\x08\1\1\0" + bytes(span) + b"\0\x0f" for span in spans)  # a bit for each of twelve blocks
    return first + table + b"".join(scans) + END


def whole(positions: Indices, sizes: Indices) -> list[View]:
    return [View(0, 0, height, width) for height, width in sizes.tolist()]


def by_all(data: bytes, limits: Limits) -> str:
    native()
    out = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    return decode_all([data], whole, Decoding(limits=limits), Target(out, "bilinear", "zero"))[0]


def by_pillow(data: bytes, limits: Limits) -> str:
    out = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    try:
        decode_by_pillow(data, 0, whole, Decoding(limits=limits), Target(out, "bilinear", "zero"))
    except BadImage as error:
        return str(error)
    return ""


EITHER = pytest.mark.parametrize("reason_of", [by_all, by_pillow])


def test_scans_are_counted_as_libjpeg_meets_them() -> None:
    pixels = photograph(24, 32)
    progressive = jpeg(pixels, progressive=True)
    assert count_scans(jpeg(pixels)) == 1
    assert count_scans(progressive) == 10
    assert count_scans(with_scans(1000)) == 1000
    thumbnail = b"Exif\0\0" + with_scans(30)
    assert count_scans(jpeg(pixels, exif=thumbnail)) == 1, "what a segment holds is passed over"
    assert count_scans(progressive + with_scans(1000)) == 10, "nothing is read behind the end"
    hidden = progressive[:-2] + b"\xff\x02\xff\xff" + with_scans(200)[2:]
    assert count_scans(hidden) >= 200, "a marker below 0xc0 has no length"


@EITHER
def test_a_jpeg_of_a_thousand_scans_is_refused(reason_of: Callable[[bytes, Limits], str]) -> None:
    many = with_scans(1000)
    assert reason_of(many, Limits(10**6, 100)) == "it has 1,000 scans; more than data.max_scans=100"
    assert reason_of(many, Limits(10**6, 1000)) == ""
    assert reason_of(with_scans(100), Limits(10**6, 100)) == ""


@EITHER
def test_so_is_one_that_libjpeg_has_nothing_against(reason_of: Callable[[bytes, Limits], str]) -> None:
    data = with_a_scan_for_each_coefficient()
    assert reason_of(data, Limits(10**6, 65)) == ""
    assert reason_of(data, Limits(10**6, 64)) == "it has 65 scans; more than data.max_scans=64"


def test_native_code_keeps_to_the_limit_by_itself() -> None:
    decoder, data, out = native(), with_a_scan_for_each_coefficient(), np.zeros((8, 8, 3), dtype=np.uint8)
    if decoder.library is None:
        pytest.skip("libjpeg-turbo is not installed")
    for max_scans, who in ((65, BY_LIBRARY), (64, LEFT)):
        settings = DecodeSettings(8, 3, exact=True, limits=Limits(10**6, max_scans))
        assert decoder.decode([data], [View(0, 0, 8, 8)], settings, [address(out)]).tolist() == [who]
    assert 88 <= out.min() == out.max() <= 92


@EITHER
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP"])
def test_an_image_of_too_many_pixels_is_refused(form: str, reason_of: Callable[[bytes, Limits], str]) -> None:
    data = image_bytes(noise(30, 40, 3), form)
    assert reason_of(data, Limits(1199, 100)) == "it has 1,200 pixels; more than data.max_pixels=1199"
    assert reason_of(data, Limits(1200, 100)) == ""


@EITHER
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_raised_limit_counts_for_pillow_too(
    form: str, reason_of: Callable[[bytes, Limits], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = image_bytes(noise(30, 40, 3), form)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert reason_of(data, Limits(150, 100)) == "it has 1,200 pixels; more than data.max_pixels=150"
    assert reason_of(data, Limits(1300, 100)) == ""


def test_limits_are_settings_and_such_images_are_bad_images(tmp_path: Path) -> None:
    folder = tmp_path / "d" / "a"
    folder.mkdir(parents=True)
    (tmp_path / "d" / "b").mkdir()
    (folder / "many.jpg").write_bytes(with_scans(200))
    (folder / "large.png").write_bytes(image_bytes(noise(60, 60, 3)))
    (tmp_path / "d" / "b" / "good.jpg").write_bytes(jpeg(photograph(20, 20), exif=oriented(1)))

    def verified(*settings: str) -> list[str]:
        text = io.StringIO()
        verify_data(Console(file=text, width=300), str(tmp_path / "d"), list(settings), None)
        return text.getvalue().splitlines()

    lines = verified("data.max_pixels=3000")
    assert any("it has 200 scans; more than data.max_scans=100" in line for line in lines), lines
    assert any("it has 3,600 pixels; more than data.max_pixels=3000" in line for line in lines), lines
    assert not any("do not decode" in line for line in verified("data.max_scans=200"))


@pytest.mark.parametrize("form", ["pixels", "encoded"])
def test_packing_keeps_to_the_limits(form: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "many.jpg").write_bytes(with_scans(200))
    source = open_class_folders(tmp_path, channels=3, pool=None)
    assert isinstance(source, EncodedSource)
    treatment = Treatment(8, None, 3, "bilinear", False)
    with pytest.raises(BadImage, match="it has 200 scans"):
        getattr(treatment, form)(source, 0)
    source.decoding = Decoding(limits=Limits(10**6, 200))
    assert len(getattr(treatment, form)(source, 0))
