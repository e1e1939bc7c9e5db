"""Images in memory: copies, padding, flips, resizing, statistics."""

import numpy as np
import pytest
from PIL import Image

from phalanx.data.base import Pixels, Source, View
from phalanx.data.sources.arrays import ArraySource, array_source, as_channels, statistics
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, noise


def made(images: Pixels) -> ArraySource:
    labels = np.arange(len(images)) % 3
    return array_source("noise", "noise", images, labels, ["a", "b", "c"], image_size=8, channels=None)


def read(images: Pixels, framing: FixedViews) -> Pixels:
    return made(images).read(np.arange(len(images)), framing, 0, replace_bad=True).images


def test_is_a_source() -> None:
    source: Source = made(noise(5, 8, 8, 3))
    assert len(source) == 5
    assert source.description == "noise, 5 × 8×8×3"
    assert source.name(4) == "noise #4"


def test_the_whole_image_is_copied_as_it_is() -> None:
    images = noise(7, 8, 8, 3)
    result = made(images).read(np.array([6, 0, 6]), FixedViews(8), 0, replace_bad=False)
    np.testing.assert_array_equal(result.images, images[[6, 0, 6]])
    np.testing.assert_array_equal(result.labels, [0, 0, 0])
    np.testing.assert_array_equal(result.indices, [6, 0, 6])
    assert result.bad == []


def test_no_samples_give_an_empty_read() -> None:
    result = made(noise(2, 8, 8, 3)).read(np.array([], dtype=np.int64), FixedViews(4), 0, replace_bad=True)
    assert result.images.shape == (0, 4, 4, 3)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("pad_mode", ["zero", "reflect"])
def test_crops_that_leave_the_image_equal_those_of_a_padded_one(channels: int, pad_mode: str) -> None:
    images = noise(9, 8, 8, channels)
    views = tuple(
        View(float(top), float(left), 8.0, 8.0, flip)
        for top, left, flip in [(-4, 0, False), (0, 4, True), (4, -4, True), (0, 0, True), (-1, 3, False)]
    )
    edges = ((0, 0), (4, 4), (4, 4), (0, 0))
    padded = np.pad(images, edges) if pad_mode == "zero" else np.pad(images, edges, mode="reflect")
    result = read(images, FixedViews(8, views, pad_mode=pad_mode))
    for i, pixels in enumerate(result):
        view = views[i % len(views)]
        top, left = int(view.top) + 4, int(view.left) + 4
        expected = padded[i, top : top + 8, left : left + 8]
        np.testing.assert_array_equal(pixels, expected[:, ::-1] if view.flip else expected)


def test_a_centre_crop_of_another_shape() -> None:
    images = noise(3, 10, 14, 3)
    np.testing.assert_array_equal(read(images, FixedViews(6, (View(2, 4, 6, 6),))), images[:, 2:8, 4:10])


@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_is_pillows(channels: int) -> None:
    images = noise(2, 16, 20, channels)
    view = View(1.5, 2.25, 12.0, 11.5, flip=True)
    result = read(images, FixedViews(5, (view,), interpolation="bicubic"))
    box = (2.25, 1.5, 2.25 + 11.5, 1.5 + 12.0)
    for pixels, image in zip(result, images, strict=True):
        expected = Image.fromarray(image.squeeze()).resize((5, 5), Image.Resampling.BICUBIC, box=box)
        np.testing.assert_array_equal(pixels[:, ::-1], np.asarray(expected).reshape(5, 5, channels))


def test_shrinking_averages_instead_of_picking_pixels() -> None:
    checkers = np.indices((32, 32)).sum(axis=0) % 2 * 255
    result = read(checkers.astype(np.uint8)[None, :, :, None], FixedViews(4))
    assert np.all(np.abs(result.astype(int) - 128) < 16)


def test_any_number_of_channels_is_resized() -> None:
    images = noise(1, 8, 8, 5)
    result = read(images, FixedViews(16))
    for channel in range(5):
        alone = read(images[..., channel : channel + 1], FixedViews(16))
        np.testing.assert_array_equal(result[..., channel : channel + 1], alone)


def test_a_resized_view_outside_of_the_image_sees_the_padding() -> None:
    images = np.full((1, 8, 8, 1), 200, dtype=np.uint8)
    outside = (View(-4.0, 0.0, 8.0, 8.0),)
    zero = read(images, FixedViews(16, outside))[0, :, :, 0]
    assert np.all(zero[:6] == 0)
    assert np.all(zero[10:] == 200)
    assert np.all(read(images, FixedViews(16, outside, pad_mode="reflect")) == 200)


@pytest.mark.parametrize("pad_mode", ["zero", "reflect"])
def test_a_sample_does_not_depend_on_its_company(pad_mode: str) -> None:
    source = made(noise(5, 6, 6, 3))
    views = (View(-5, 0, 6, 6), View(3, 9, 6, 6, True), View(0, 0, 6, 6), View(0.5, 0.5, 5, 5), View(-2, -9, 6, 6))
    for chosen in (np.arange(5), np.array([0, 1, 2, 4])):  # with and without one that needs resizing
        together = source.read(chosen, FixedViews(6, views, pad_mode=pad_mode), 0, replace_bad=True).images
        for i, index in enumerate(chosen):
            alone = source.read(np.array([index]), FixedViews(6, views, pad_mode=pad_mode), 0, replace_bad=True).images
            np.testing.assert_array_equal(together[i], alone[0])


def test_a_rounding_error_beyond_the_edge_is_no_padding() -> None:
    images = np.full((1, 8, 8, 3), 255, dtype=np.uint8)
    assert np.all(read(images, FixedViews(16, (View(-1e-9, 1e-9, 8.0, 8.0),))) == 255)


def test_a_subset_keeps_names_and_labels() -> None:
    images = noise(6, 8, 8, 3)
    subset = made(images).subset(np.array([4, 2])).subset(np.array([1]))
    assert (len(subset), subset.name(0), subset.labels.tolist()) == (1, "noise #2", [2])
    np.testing.assert_array_equal(subset.read(np.array([0]), FixedViews(8), 0, replace_bad=True).images, images[2:3])


def test_statistics_are_those_of_numpy() -> None:
    images = noise(11, 5, 7, 3)
    mean, std = statistics(images, np.arange(11))
    np.testing.assert_allclose(mean, images.mean(axis=(0, 1, 2)) / 255, atol=5.1e-5)
    np.testing.assert_allclose(std, images.std(axis=(0, 1, 2)) / 255, atol=5.1e-5)


def test_statistics_of_many_images_take_evenly_spaced_ones() -> None:
    images = np.zeros((20_000, 1, 1, 1), dtype=np.uint8)
    images[1::2] = 255  # never looked at
    mean, std = statistics(images, np.arange(20_000))
    assert mean == (0.0,)
    assert std[0] > 0, "a constant must not divide by zero"


def test_grey_becomes_colour_and_colour_grey_as_pillow_does_it() -> None:
    grey, colour = noise(2, 4, 4, 1), noise(2, 4, 4, 3)
    np.testing.assert_array_equal(as_channels(grey, 3, "x"), np.concatenate([grey] * 3, axis=-1))
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in colour])[..., None]
    np.testing.assert_array_equal(as_channels(colour, 1, "x"), expected)


def test_channels_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        as_channels(noise(1, 4, 4, 5), 3, "noise")
    assert_helpful(caught.value, "noise", "5 channels")
