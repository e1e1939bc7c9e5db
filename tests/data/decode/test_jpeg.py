"""The native decoder against Pillow: the same pixels, the same verdicts, and never a crash."""

import io
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from phalanx.data.base import Pixels, View
from phalanx.data.decode.images import (
    FAST,
    BadImage,
    Decoding,
    Target,
    decode,
    decode_all,
    decode_by_pillow,
    decode_natively,
)
from phalanx.data.decode.jpeg import (
    BY_LIBRARY,
    BY_OURSELVES,
    LEFT,
    DecodeSettings,
    JpegDecoder,
    bind,
    declare,
    decoder_status,
    find_decoder,
    found_decoder,
    libraries,
)
from phalanx.data.decode.resize import address
from phalanx.data.order import Indices
from phalanx.native.build import find_library
from tests.data.jpegs import ODD_SAMPLING, as_ycck, jpeg, native, of_size, oriented, photograph, without_tables
from tests.data.samples import REAL, image_bytes, needs_real_data, noise

pytestmark = pytest.mark.numeric

EXACT = Decoding(exact=True)
CPU = Path("/proc/cpuinfo")
HAS_AVX2 = CPU.exists() and " avx2" in CPU.read_text()
needs_avx2 = pytest.mark.skipif(not HAS_AVX2, reason="this processor has no AVX2")


def by_native(data: bytes, view: View, size: int, channels: int = 3, decoding: Decoding = EXACT) -> Pixels:
    """Fails where native code leaves the image to Pillow."""
    out = np.zeros((1, size, size, channels), dtype=np.uint8)
    left = decode_natively(native(), [data], lambda positions, sizes: [view], decoding, Target(out, "bilinear", "zero"))
    assert not left
    return out.reshape(size, size, channels)


def told(view: View, height: int, width: int) -> View:
    return view


def opened(data: bytes, mode: str = "RGB") -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float, bool]:
    """Top, left, height and width as shares of the image, often outside of it; and whether it is flipped."""
    share = st.floats(-0.4, 1.2)
    extent = st.floats(0.01, 1.5)
    return draw(share), draw(share), draw(extent), draw(extent), draw(st.booleans())


@settings(max_examples=100, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 180), st.integers(1, 180)),
    mode=st.sampled_from(["RGB", "RGB", "L"]),
    subsampling=st.integers(0, 2),
    progressive=st.booleans(),
    restart=st.integers(0, 5),
    orientation=st.integers(1, 8),
    box=boxes(),
    whole_pixels=st.booleans(),
    size=st.integers(1, 60),
    channels=st.sampled_from([1, 3]),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
    pad_mode=st.sampled_from(["zero", "reflect"]),
    decoding=st.builds(Decoding, st.booleans(), st.booleans()),
)
@example(  # a view so much larger than its image that not a pixel would be left of the image
    *((3, 4), "RGB", 0, False, 0, 1, (0.0, 0.0, 1.5, 1.0, False), False, 1, 1, "bilinear", "zero", Decoding())
)
def test_native_code_and_pillow_make_the_same_pixels(
    shape: tuple[int, int],
    mode: str,
    subsampling: int,
    progressive: bool,
    restart: int,
    orientation: int,
    box: tuple[float, float, float, float, bool],
    whole_pixels: bool,
    size: int,
    channels: int,
    interpolation: str,
    pad_mode: str,
    decoding: Decoding,
) -> None:
    decoder = native()
    data = jpeg(
        photograph(*shape),
        mode,
        progressive=progressive,
        restart_marker_blocks=restart,
        exif=oriented(orientation),
        **({} if mode == "L" else {"subsampling": subsampling}),
    )

    def views_of(positions: Indices, sizes: Indices) -> list[View]:
        height, width = sizes[0].tolist()
        numbers = (box[0] * height, box[1] * width, box[2] * height, box[3] * width)
        if whole_pixels:
            numbers = (round(numbers[0]), round(numbers[1]), 1 + round(numbers[2]), 1 + round(numbers[3]))
        return [View(*numbers, flip=box[4])]

    ours, pillows = (np.zeros((1, size, size, channels), dtype=np.uint8) for _ in range(2))
    assert not decode_natively(decoder, [data], views_of, decoding, Target(ours, interpolation, pad_mode))
    decode_by_pillow(data, 0, views_of, decoding, Target(pillows, interpolation, pad_mode))
    np.testing.assert_array_equal(ours, pillows)


@pytest.mark.parametrize("kind", ["4:4:4", "4:2:2", "4:2:0", "4:1:1", "4:4:0", "grey", "progressive", "restarts"])
def test_any_part_of_an_image_is_that_part_of_the_whole(kind: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "4:4:4": {"subsampling": 0},
        "4:2:2": {"subsampling": 1},
        "progressive": {"progressive": True},
        "restarts": {"restart_marker_blocks": 2},
    }
    pixels = photograph(61, 107)
    data = ODD_SAMPLING.get(kind) or jpeg(pixels, "L" if kind == "grey" else "RGB", **options.get(kind, {}))
    whole = opened(data)
    height, width = whole.shape[:2]
    rng = np.random.default_rng(1)
    for size in (1, 2, 9, 33):
        for _ in range(12):
            top, left = int(rng.integers(0, height - size + 1)), int(rng.integers(0, width - size + 1))
            part = by_native(data, View(top, left, size, size), size)
            np.testing.assert_array_equal(part, whole[top : top + size, left : left + size])


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (7, 9), (16, 16), (17, 33)])
def test_small_and_odd_sizes(shape: tuple[int, int]) -> None:
    data = jpeg(photograph(*shape))
    whole = View(0, 0, *shape)
    expected = Image.fromarray(opened(data)).resize((8, 8), Image.Resampling.BILINEAR)
    assert np.abs(by_native(data, whole, 8).astype(int) - np.asarray(expected)).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_followed_when_asked_for(orientation: int) -> None:
    data = jpeg(photograph(30, 45), exif=oriented(orientation))
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    seen = by_native(data, View(3, 5, 20, 20), 20, decoding=Decoding(exact=True, exif_orientation=True))
    np.testing.assert_array_equal(seen, upright[3:23, 5:25])
    left_alone = by_native(data, View(3, 5, 20, 20), 20)
    np.testing.assert_array_equal(left_alone, opened(data)[3:23, 5:25])


@pytest.mark.parametrize(
    "exif",
    [b"Exif\0\0", b"Exif\0\0MM\0*", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\1" * 9],
)
def test_damaged_exif_data_means_no_orientation(exif: bytes) -> None:
    pixels = photograph(20, 30)
    data = jpeg(pixels, exif=exif)
    decoding = Decoding(exif_orientation=True)
    for file, expected in ((data, by_native(data, View(0, 0, 20, 20), 20)), (image_bytes(pixels), pixels[:20, :20])):
        seen = decode(file, lambda height, width: View(0, 0, 20, 20), 20, 3, "bilinear", decoding=decoding)
        np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_four_colours_are_left_to_pillow(channels: int) -> None:
    cmyk = jpeg(photograph(40, 50), "CMYK")
    for data in (cmyk, as_ycck(cmyk)):
        seen = decode(data, lambda height, width: View(4, 4, 20, 20), 20, channels, "bilinear", decoding=EXACT)
        mode = "L" if channels == 1 else "RGB"
        np.testing.assert_array_equal(seen, opened(data, mode).reshape(40, 50, channels)[4:24, 4:24])


def test_a_batch_of_all_sorts() -> None:
    native()
    pixels = photograph(24, 24)
    good, grey = jpeg(pixels), jpeg(pixels, "L")
    data = [good, image_bytes(pixels), b"", good[: len(good) // 2], grey, b"no image", as_ycck(jpeg(pixels, "CMYK"))]
    out = np.zeros((len(data), 24, 24, 3), dtype=np.uint8)

    def views_of(positions: Indices, sizes: Indices) -> list[View]:
        return [View(0, 0, *size) for size in sizes.tolist()]

    reasons = decode_all(data, views_of, FAST, Target(out, "bilinear", "zero"))
    assert [bool(reason) for reason in reasons] == [False, False, True, True, False, True, False]
    np.testing.assert_array_equal(out[0], opened(good))
    np.testing.assert_array_equal(out[1], pixels)
    np.testing.assert_array_equal(out[4], opened(grey))


def test_a_file_is_cut_off_even_where_the_view_lies_above_the_cut() -> None:
    data = jpeg(photograph(120, 40), restart_marker_blocks=2)
    for view in (View(0, 0, 16, 16), View(0, 0, 120, 40)):
        with pytest.raises(BadImage, match="truncated"):
            decode(data[: len(data) * 2 // 3], partial(told, view), 16, 3, "bilinear")


def test_what_follows_the_end_of_a_file_does_not_matter() -> None:
    data = jpeg(photograph(30, 30))
    view = View(0, 0, 30, 30)
    np.testing.assert_array_equal(by_native(data + b"\0" * 1000, view, 30), by_native(data, view, 30))


def test_a_thumbnails_end_is_not_the_files() -> None:
    thumbnail = b"Exif\0\0" + jpeg(photograph(8, 8))
    data = jpeg(photograph(60, 60), exif=thumbnail)
    assert by_native(data, View(0, 0, 8, 8), 8).shape == (8, 8, 3)
    with pytest.raises(BadImage):
        decode(data[:-400], lambda height, width: View(0, 0, 8, 8), 8, 3, "bilinear")


def test_a_bomb_is_refused_before_memory_is_taken() -> None:
    data = of_size(jpeg(photograph(16, 16)), 65_000, 65_000)
    with pytest.raises(BadImage, match="4,225,000,000 pixels; more than"):
        decode(data, lambda height, width: View(0, 0, 8, 8), 8, 3, "bilinear")


def test_an_image_does_not_depend_on_the_one_before() -> None:
    decoder = native()
    good = jpeg(photograph(32, 32))
    bare = without_tables(good)
    assert b"\xff\xdb" not in bare
    out = np.zeros((2, 32, 32, 3), dtype=np.uint8)

    def views_of(positions: Indices, sizes: Indices) -> list[View]:
        return [View(0, 0, 32, 32)] * len(positions)

    for data, bad in (([good, bare], 1), ([bare, good], 0)):
        assert list(decode_natively(decoder, data, views_of, FAST, Target(out, "bilinear", "zero"))) == [bad]


@settings(max_examples=200, deadline=None)
@given(
    place=st.floats(0, 1, exclude_max=True),
    kind=st.sampled_from(["cut", "cut, ended", "byte", "bit", "header"]),
    value=st.integers(0, 255),
    form=st.integers(0, 3),
    view=boxes(),
    channels=st.sampled_from([1, 3]),
)
@pytest.mark.filterwarnings("ignore")  # Pillow warns about what it skips
def test_damage_never_crashes(
    place: float, kind: str, value: int, form: int, view: tuple[float, float, float, float, bool], channels: int
) -> None:
    native()
    data = DAMAGED[form]
    at = int(place * (600 if kind == "header" else len(data))) % len(data)
    if kind.startswith("cut"):
        changed = data[:at] + (b"\xff\xd9" if kind == "cut, ended" else b"")
    else:
        changed = data[:at] + bytes([data[at] ^ (1 << value % 8) if kind == "bit" else value]) + data[at + 1 :]

    def view_of(height: int, width: int) -> View:
        return View(view[0] * height, view[1] * width, view[2] * height, view[3] * width, view[4])

    for decoding in (FAST, EXACT):
        with suppress(BadImage):
            first = decode(changed, view_of, 12, channels, "bilinear", "reflect", decoding)
            np.testing.assert_array_equal(
                first, decode(changed, view_of, 12, channels, "bilinear", "reflect", decoding)
            )


DAMAGED = [
    jpeg(photograph(40, 50), restart_marker_blocks=3),
    jpeg(photograph(50, 40), progressive=True, exif=oriented(6)),
    jpeg(photograph(33, 47), "L"),
    ODD_SAMPLING["4:1:1"],
]


def quality_db(one: Pixels, other: Pixels) -> float:
    """Peak signal to noise ratio."""
    return float(10 * np.log10(255**2 / (1e-9 + np.mean((one.astype(float) - other) ** 2))))


@needs_real_data
def test_fast_decoding_looks_like_exact_decoding() -> None:
    native()
    found = []
    for path in sorted((REAL / "pets").rglob("*_1*.jpg"))[:40]:
        data = path.read_bytes()
        if not data.startswith(b"\xff\xd8"):
            continue
        side = min(opened(data).shape[:2])
        for size in (side // 5, side // 2):
            views = [by_native(data, View(0, 0, side, side), size, decoding=how) for how in (FAST, EXACT)]
            assert np.any(views[0] != views[1]), "the view is twice as large, so fast decoding scales"
            found.append(quality_db(*views))
    assert len(found) > 40
    assert min(found) > 30
    assert np.median(found) > 40


def test_nothing_is_scaled_below_the_wanted_size() -> None:
    data = jpeg(photograph(300, 300))
    for size, scaled in ((150, True), (151, False), (300, False)):
        views = [by_native(data, View(0, 0, 300, 300), size, decoding=how) for how in (FAST, EXACT)]
        assert bool(np.any(views[0] != views[1])) == scaled


def maker(data: bytes, decoder: JpegDecoder, size: int = 20) -> tuple[int, Pixels]:
    """Who decodes the upper left of an image, and what comes of it."""
    out = np.zeros((size, size, 3), dtype=np.uint8)
    settings = DecodeSettings(size, 3, exact=True)
    return int(decoder.decode([data], [View(0, 0, size, size)], settings, [address(out)])[0]), out


@pytest.fixture
def bound() -> Generator[tuple[JpegDecoder, Path]]:
    """A decoder with a library, which it has again afterwards."""
    decoder = native()
    if decoder.library is None:
        pytest.skip("libjpeg-turbo is not installed")
    yield decoder, decoder.library
    bind(decoder.native, decoder.library)


def test_every_libjpeg_turbo_at_hand_decodes_alike(bound: tuple[JpegDecoder, Path]) -> None:
    decoder, own = bound
    data = jpeg(photograph(50, 70), progressive=True)
    expected = maker(data, decoder)
    assert expected[0] == BY_LIBRARY
    assert own in set(libraries())
    for path in dict.fromkeys(libraries()):
        assert bind(decoder.native, path) is None, path
        made, pixels = maker(data, decoder)
        assert made == BY_LIBRARY
        np.testing.assert_array_equal(pixels, expected[1])


def test_without_a_library_only_the_common_kind_is_decoded(bound: tuple[JpegDecoder, Path]) -> None:
    decoder, _ = bound
    common, other = jpeg(photograph(50, 70)), jpeg(photograph(50, 70), progressive=True)
    decoder.native.jpeg_unbind()
    assert maker(other, decoder)[0] == LEFT
    assert maker(common, decoder)[0] == (BY_OURSELVES if HAS_AVX2 else LEFT)
    seen = decode(other, lambda height, width: View(0, 0, 20, 20), 20, 3, "bilinear", decoding=EXACT)
    np.testing.assert_array_equal(seen, opened(other)[:20, :20])


@needs_avx2
def test_who_decodes_what() -> None:
    decoder, pixels = native(), photograph(40, 60)
    kinds: dict[int, list[bytes]] = {
        BY_OURSELVES: [
            *(jpeg(pixels, subsampling=number) for number in range(3)),
            *(
                jpeg(pixels, optimize=True),
                jpeg(pixels, restart_marker_blocks=2),
                jpeg(pixels, "L"),
                jpeg(noise(40, 60, 3)),
            ),
        ],
        BY_LIBRARY: [jpeg(pixels, progressive=True), *ODD_SAMPLING.values()],
        LEFT: [jpeg(pixels, "CMYK"), jpeg(pixels)[:-100], image_bytes(pixels), *damaged_but_decodable()],
    }
    for who, files in kinds.items():
        assert [maker(data, decoder)[0] for data in files] == [who] * len(files)


def damaged_but_decodable() -> list[bytes]:
    """Compressed data that is altered or ends too early: what libjpeg fills in is Pillow's to decide."""
    data = jpeg(photograph(40, 60))
    return [data[:700] + data[-2:], data[: len(data) // 2] + b"\xff\xd0" + data[len(data) // 2 :]]


@needs_avx2
def test_the_library_makes_the_same_pixels_as_we_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a processor without AVX2 runs, compiled for this test."""
    ours = native()
    if ours.library is None:
        pytest.skip("libjpeg-turbo is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc -mno-avx2")
    compiled = find_library.__wrapped__("jpeg", "Pillow").handle
    assert compiled is not None
    declare(compiled)
    assert bind(compiled, ours.library) is None
    theirs = JpegDecoder(compiled, ours.library)
    for number in range(4):
        data = jpeg(photograph(90, 101, seed=number), subsampling=number % 3, optimize=number == 3)
        for size in (1, 31, 90):
            made, pixels = maker(data, theirs, size)
            assert made == BY_LIBRARY
            np.testing.assert_array_equal(pixels, maker(data, ours, size)[1])


def test_a_library_of_another_kind_is_not_bound(bound: tuple[JpegDecoder, Path]) -> None:
    decoder, library = bound
    other = next(library.parent.glob("libpng*"), None)
    if other is None:
        pytest.skip("this libjpeg-turbo has no other libraries beside it")
    assert "jpeg_std_error" in str(bind(decoder.native, other))


def test_without_native_code_pillow_does_it_and_says_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(noise(40, 40, 3))
    before = decode(data, lambda height, width: View(0, 0, 30, 30), 20, 3, "bicubic")
    monkeypatch.setenv("PHALANX_NATIVE", "0")
    find_library.cache_clear()
    found_decoder.cache_clear()
    try:
        assert find_decoder() is None
        assert "Pillow (PHALANX_NATIVE=0)" in decoder_status()
        after = decode(data, lambda height, width: View(0, 0, 30, 30), 20, 3, "bicubic")
    finally:
        find_library.cache_clear()
        found_decoder.cache_clear()
    np.testing.assert_array_equal(after, before)
