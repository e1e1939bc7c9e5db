"""Boxes of images in memory: native code and Pillow agree bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from phalanx.data.base import View
from phalanx.data.decode.resize import native_resizer, resize_all, resize_by_pillow, resize_into
from tests.data.samples import noise, smooth

pytestmark = pytest.mark.numeric


@settings(max_examples=150, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 70), st.sampled_from([1, 2, 3, 4])),
    box=st.tuples(st.floats(-0.5, 1), st.floats(-0.5, 1), st.floats(0.01, 1.5), st.floats(0.01, 1.5), st.booleans()),
    size=st.integers(1, 40),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
    pad_mode=st.sampled_from(["zero", "reflect"]),
)
def test_native_code_and_pillow_agree(
    shape: tuple[int, int, int],
    box: tuple[float, float, float, float, bool],
    size: int,
    interpolation: str,
    pad_mode: str,
) -> None:
    pixels = noise(*shape)
    view = View(box[0] * shape[0], box[1] * shape[1], box[2] * shape[0], box[3] * shape[1], box[4])
    out, expected = np.zeros((size, size, shape[2]), np.uint8), np.zeros((size, size, shape[2]), np.uint8)
    resize_into(pixels, view, size, interpolation, pad_mode, out)
    resize_by_pillow(pixels, view, size, interpolation, pad_mode, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_it_is_what_pillow_does_in_one_go(interpolation: str) -> None:
    pixels = smooth(300, 200)
    out = np.empty((50, 50, 3), np.uint8)
    resize_into(pixels, View(20, 10, 250, 150), 50, interpolation, "zero", out)
    box = (10, 20, 160, 270)
    expected = Image.fromarray(pixels).resize((50, 50), Image.Resampling[interpolation.upper()], box=box)
    assert np.abs(out.astype(int) - np.asarray(expected)).max() <= 1


def test_images_of_different_sizes_in_one_call() -> None:
    images = [noise(10, 20, 3), noise(30, 7, 3, seed=1)]
    views = [View(0, 0, 10, 20), View(3, 1, 8, 5, flip=True)]
    together = np.empty((2, 8, 8, 3), np.uint8)
    resize_all(images, views, 8, "bilinear", "zero", together)
    for image, view, expected in zip(images, views, together, strict=True):
        alone = np.empty((8, 8, 3), np.uint8)
        resize_into(image, view, 8, "bilinear", "zero", alone)
        np.testing.assert_array_equal(alone, expected)


def test_parts_of_arrays_are_resized_where_they_are() -> None:
    large = noise(40, 40, 3)
    part, out = large[5:25, 3:33], np.empty((9, 9, 3), np.uint8)
    resize_into(part, View(0, 0, 20, 30), 9, "bilinear", "zero", out)
    again = np.empty_like(out)
    resize_into(part.copy(), View(0, 0, 20, 30), 9, "bilinear", "zero", again)
    np.testing.assert_array_equal(out, again)


@pytest.mark.parametrize("view", [View(0, 0, 0, 5), View(0, 0, -1, 5), View(0, float("nan"), 5, 5), View(1e9, 0, 5, 5)])
def test_a_senseless_view_is_a_mistake_of_ours(view: View) -> None:
    if native_resizer() is None:
        pytest.skip("a C compiler is not installed")
    with pytest.raises(ValueError, match="does not fit"):
        resize_into(noise(8, 8, 3), view, 4, "bilinear", "zero", np.empty((4, 4, 3), np.uint8))


def test_what_does_not_fit_is_refused_before_memory_is_written() -> None:
    with pytest.raises(ValueError):
        resize_into(noise(8, 8, 3), View(0, 0, 8, 8), 4, "bilinear", "zero", np.empty((4, 4, 1), np.uint8))
    with pytest.raises(ValueError):
        resize_into(noise(8, 8, 3), View(0, 0, 8, 8), 5, "bilinear", "zero", np.empty((4, 4, 3), np.uint8))
