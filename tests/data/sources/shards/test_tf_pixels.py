"""TFRecord with raw pixels: bytes, lists of numbers and tensors, of every size and type; and one-hot labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.sources.open import open_data
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.tf_example import tensor_of
from phalanx.data.sources.shards.tfrecord import open_tfrecord
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, noise, smooth
from tests.data.shard_files import Values, example, field, tf_record, varint, wanted

Array = npt.NDArray[Any]


def write(path: Path, *examples: Mapping[str, Values]) -> Path:
    path.write_bytes(b"".join(tf_record(example(dict(features))) for features in examples))
    return path


def opened(path: Path, **settings: Any) -> ShardSource:
    return open_tfrecord([path], wanted(**settings))


def refused(path: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(path, **settings)
    return caught.value


def images(count: int, *shape: int) -> Pixels:
    return noise(count, *shape)


def pixels(source: ShardSource, size: int) -> Pixels:
    read = source.read(np.arange(len(source)), FixedViews(size), 0, replace_bad=False)
    assert read.bad == []
    return read.images


def tensor(array: Array, number: int) -> bytes:
    """What tf.io.serialize_tensor writes: the number of the type, the shape, the content."""
    dims = b"".join(field(2, varint(1 << 3) + varint(size)) for size in array.shape)
    return varint(1 << 3) + varint(number) + field(2, dims) + field(4, array.tobytes())


def flat(array: Array) -> Any:
    return array.ravel().tolist()


SIZES = [
    ("height", "width", "depth"),
    ("rows", "cols", "channels"),
    ("image/height", "image/width", "image/channels"),
]


@pytest.mark.parametrize("names", SIZES)
@pytest.mark.parametrize("name", ["image_raw", "image", "img", "x", "image/encoded", "IMAGE"])
def test_bytes_with_their_size(tmp_path: Path, name: str, names: tuple[str, str, str]) -> None:
    expected = images(3, 6, 6, 3)
    records: list[dict[str, Values]] = [
        {name: image.tobytes(), **{key: [size] for key, size in zip(names, (6, 6, 3), strict=True)}, "label": [i]}
        for i, image in enumerate(expected)
    ]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, 6), expected)
    assert (source.labels.tolist(), source.channels, source.image_size, source.extent) == ([0, 1, 2], 3, 6, (6, 6))
    assert source.notes[-1].startswith(f"fields: image = {name} (raw 6×6×3 uint8, channels last; if they come channel")
    assert source.notes[-1].endswith(f", label = label; also in the records: {', '.join(sorted(names))}")


def test_images_of_different_sizes(tmp_path: Path) -> None:
    sizes = [(4, 9), (7, 5), (12, 3)]
    expected = [noise(*size, 3, seed=i) for i, size in enumerate(sizes)]
    records: list[dict[str, Values]] = [
        {"image": image.tobytes(), "height": [height], "width": [width], "depth": [3], "label": [0]}
        for image, (height, width) in zip(expected, sizes, strict=True)
    ]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(source.image(index), image)
    assert (source.extent, source.image_size) == (None, 224)
    assert "raw of several sizes uint8" in source.notes[-1]


@pytest.mark.parametrize(("shape", "text"), [((28, 28, 1), "28×28×1"), ((32, 32, 3), "32×32×3")])
def test_squares_by_their_number_of_bytes(tmp_path: Path, shape: tuple[int, ...], text: str) -> None:
    expected = images(4, *shape)
    records = [{"image_raw": image.tobytes(), "label": [1]} for image in expected]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, shape[0]), expected)
    assert f"raw {text} uint8" in source.notes[-1]


def test_channel_by_channel(tmp_path: Path) -> None:
    expected = images(3, 32, 32, 3)
    planes = [{"image": image.transpose(2, 0, 1).tobytes(), "label": [1]} for image in expected]
    path = write(tmp_path / "a.tfrecord", *planes)
    np.testing.assert_array_equal(pixels(opened(path, image_layout="chw"), 32), expected)
    np.testing.assert_array_equal(pixels(opened(path, image_shape=[3, 32, 32]), 32), expected)
    path = write(tmp_path / "b.tfrecord", *[{**record, "shape": [3, 32, 32]} for record in planes])
    source = opened(path)
    np.testing.assert_array_equal(pixels(source, 32), expected)
    assert "raw 32×32×3 channel by channel uint8" in source.notes[-1]


def test_pictures_that_look_channel_by_channel_are_told(tmp_path: Path) -> None:
    picture = smooth(32, 32)
    for name, stored, words in (
        ("a", picture, "last; if they come channel by channel: data.image_layout=chw"),
        ("b", picture.transpose(2, 0, 1), "they look channel by channel; if they are: data.image_layout=chw"),
        ("c", np.repeat(picture[..., 1:2], 3, axis=2), "last; if they come channel by channel"),
    ):
        path = write(tmp_path / f"{name}.tfrecord", {"image": stored.tobytes(), "label": [0]})
        assert words in opened(path).notes[-1]


def test_a_shape_that_is_given(tmp_path: Path) -> None:
    expected = images(3, 10, 21, 1)
    path = write(tmp_path / "a.tfrecord", *[{"image": image.tobytes(), "label": [0]} for image in expected])
    assert_helpful(refused(path), "210 bytes", "'image' (210 bytes)", "data.image_shape", "data.image_field")
    source = opened(path, image_shape=[10, 21])
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(source.image(index), image)
    assert_helpful(refused(path, image_shape=[10, 20]), "210 bytes", "10×20×1 needs 200")
    assert_helpful(refused(path, image_shape=[10, 21, 2]), "data.image_shape=[10, 21, 2]", "1, 3 or 4 channels")


def test_alpha_is_dropped_and_grey_repeated(tmp_path: Path) -> None:
    colour = images(2, 8, 8, 4)
    path = write(
        tmp_path / "a.tfrecord", *[{"image": image.tobytes(), "shape": [8, 8, 4], "label": [0]} for image in colour]
    )
    np.testing.assert_array_equal(pixels(opened(path), 8), colour[..., :3])
    grey = images(4, 8, 8, 1)
    examples = [{"image": image.tobytes(), "label": [number % 2]} for number, image in enumerate(grey)]
    path = write(tmp_path / "b.tfrecord", *examples)
    source = open_tfrecord([path], wanted())
    assert source.channels == 1
    splits = open_data(DataConfig(source=str(path), channels=3, val_share=0.5), threads=0)
    read = splits.train.read(np.array([0]), FixedViews(8), 0, replace_bad=False)
    assert read.images.shape == (1, 8, 8, 3)


LEVELS = noise(3, 8, 8, 3)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (LEVELS.astype(np.uint16) * 257, "uint16, values 0 … 65,535 scaled"),
        (LEVELS.astype(np.uint16), "uint16, values 0 … 255"),
        ((LEVELS / 255).astype(np.float32), "float32, values 0 … 1 scaled"),
        ((LEVELS / 127.5 - 1).astype(np.float32), "float32, values -1 … 1 scaled"),
        (LEVELS.astype(np.float32), "float32, values 0 … 255"),
        (LEVELS.astype(np.float64), "float64, values 0 … 255"),
        (LEVELS.astype(np.int32), "int32, values 0 … 255"),
        (LEVELS.astype(np.int64), "int64, values 0 … 255"),
    ],
)
def test_wide_values_in_bytes(tmp_path: Path, stored: Array, words: str) -> None:
    records: list[dict[str, Values]] = [
        {"image_raw": image.tobytes(), "shape": [8, 8, 3], "label": [0]} for image in stored
    ]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, 8), LEVELS)
    assert f"raw 8×8×3 {words}" in source.notes[-1]


@pytest.mark.parametrize("stored", [LEVELS.astype(np.int64), (LEVELS / 255).astype(np.float32)])
@pytest.mark.parametrize("sizes", [{}, {"height": [8], "width": [8]}])
def test_lists_of_numbers(tmp_path: Path, stored: Array, sizes: dict[str, Values]) -> None:
    records: list[dict[str, Values]] = [{"image": flat(image), "label": [0], **sizes} for image in stored]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, 8), LEVELS)
    assert "list of 8×8×3" in source.notes[-1]


@pytest.mark.parametrize(
    ("stored", "number"),
    [(LEVELS, 4), ((LEVELS / 255).astype(np.float32), 1), (LEVELS.astype(np.uint16) * 257, 17)],
)
def test_tensors(tmp_path: Path, stored: Array, number: int) -> None:
    records = [{"image": tensor(image, number), "label": [0]} for image in stored]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, 8), LEVELS)
    assert "tensor 8×8×3" in source.notes[-1]
    assert tensor_of(tensor(LEVELS[0], 4)[:-1]) is None
    assert tensor_of(LEVELS[0].tobytes()) is None
    planes = [{"image": tensor(np.ascontiguousarray(image.transpose(2, 0, 1)), 4), "label": [0]} for image in LEVELS]
    np.testing.assert_array_equal(pixels(opened(write(tmp_path / "b.tfrecord", *planes)), 8), LEVELS)


def test_lengths_that_can_be_two_things_are_refused(tmp_path: Path) -> None:
    floats = (images(3, 28, 28) / 255).astype(np.float32)
    path = write(tmp_path / "a.tfrecord", *[{"image": image.tobytes(), "label": [0]} for image in floats])
    error = refused(path)
    assert_helpful(error, "3,136 bytes can be 56×56×1 of 8 bits or 28×28×1 of 32 bits", "data.image_shape=[28,28,1]")
    source = opened(path, image_shape=[28, 28, 1])
    np.testing.assert_array_equal(pixels(source, 28), images(3, 28, 28)[..., None])
    path = write(
        tmp_path / "b.tfrecord",
        *[{"image": image.tobytes(), "height": [28], "width": [28], "label": [0]} for image in floats],
    )
    assert_helpful(refused(path), "28×28×1 of 32 bits or 28×28×4 of 8 bits", "data.image_shape=[28,28,1]")


def test_blank_images_are_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", *[{"image": bytes(784), "label": [0]}] * 3)
    assert "raw 28×28×1 uint8" in opened(path).notes[-1]


def test_values_that_are_no_pixels(tmp_path: Path) -> None:
    normalised = np.linspace(-2.1, 2.6, 64, dtype=np.float32)
    path = write(tmp_path / "a.tfrecord", {"image": flat(normalised), "label": [0]})
    assert_helpful(refused(path), "floats between -2.1 and 2.6", "before they are normalised")


def test_a_later_image_outside_of_the_range_is_bad(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 64, dtype=np.float32)
    records: list[dict[str, Values]] = [{"image": flat(values), "label": [0]}] * 64
    records += [
        {"image": flat(values * 255), "label": [0]},
        {"image": flat(values[:5]), "label": [0]},
        {"image": b"?", "label": [0]},
    ]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    bad = source.read(np.arange(62, 67), FixedViews(8), 0, replace_bad=False).bad
    assert [index for index, _ in bad] == [64, 65, 66]
    assert bad[0][1] == "its values are 0 … 255, and those of the dataset 0 … 1"
    assert "5 values" in bad[1][1]
    replaced = source.read(np.array([66]), FixedViews(8), 0, replace_bad=True)
    assert replaced.indices.tolist() == [0]


def test_sizes_that_are_those_of_the_original_are_not_used(tmp_path: Path) -> None:
    """Many writers resize an image and keep its former height and width beside it."""
    expected = images(3, 16, 16, 3)
    records: list[dict[str, Values]] = [
        {"image": image.tobytes(), "height": [300], "width": [400], "label": [0]} for image in expected
    ]
    np.testing.assert_array_equal(pixels(opened(write(tmp_path / "a.tfrecord", *records)), 16), expected)


def test_a_field_without_images_is_passed_over(tmp_path: Path) -> None:
    expected = images(2, 8, 8, 1)
    records = [{"image": b"cat/01.jpg", "image_raw": image.tobytes(), "label": [0]} for image in expected]
    source = opened(write(tmp_path / "a.tfrecord", *records))
    np.testing.assert_array_equal(pixels(source, 8), expected)
    assert "image = image_raw" in source.notes[-1]


def test_packing_gets_a_compressed_image(tmp_path: Path) -> None:
    expected = images(2, 8, 8, 3)
    source = opened(write(tmp_path / "a.tfrecord", *[{"image": each.tobytes(), "label": [0]} for each in expected]))
    assert source.encoded(1).startswith(b"\x89PNG")
    subset = source.subset(np.array([1]))
    np.testing.assert_array_equal(subset.image(0), expected[1])


@pytest.mark.parametrize("one", [1, 1.0])
def test_one_hot_labels(tmp_path: Path, one: float) -> None:
    image, zero = images(1, 8, 8)[0].tobytes(), type(one)(0)
    labels: list[list[float]] = [[zero, one, zero, zero], [one, zero, zero, zero], [zero, zero, one, zero]]
    path = write(tmp_path / "a.tfrecord", *[{"image": image, "label": label} for label in labels])
    source = opened(path)
    assert (source.labels.tolist(), source.classes) == ([1, 0, 2], ["0", "1", "2", "3"])
    assert "label = label (one-hot, 4 classes)" in source.notes[-1]
    assert opened(path, label_element=2).labels.tolist() == [0, 0, 1]
    records = [{"image": image, "label": label} for label in [*labels * 30, [one, one, zero, zero]]]
    assert_helpful(refused(write(tmp_path / "b.tfrecord", *records)), "(1, 1, 0, 0)", "data.multi_label=true")


def test_sequences_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(tf_record(example({"label": [1]}) + field(2, field(1, b"\x0a\x05video"))))
    assert_helpful(refused(tmp_path / "a.tfrecord"), "tf.train.SequenceExample", "video")
