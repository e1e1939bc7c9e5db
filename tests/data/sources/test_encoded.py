"""Compressed samples: threads change nothing; bad ones are replaced or left out, and told."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.base import Read, Source, View
from phalanx.data.sources.encoded import EncodedSource, batch_parts, decode_pool, decoded_as
from phalanx.errors import UserError
from tests.data.jpegs import jpeg, oriented, photograph
from tests.data.samples import FixedViews, assert_helpful, image_bytes, smooth

BROKEN = b"not an image"


@dataclass(kw_only=True)
class InMemory(EncodedSource):
    """Compressed images in a list; None stands for a file that is gone."""

    held: list[bytes | None]

    def encoded(self, index: int) -> bytes:
        data = self.held[index]
        return Path("no such file").read_bytes() if data is None else data

    def name(self, index: int) -> str:
        return f"held {index}"


def encoded(data: list[bytes | None], threads: int = 2) -> InMemory:
    return InMemory(
        held=data,
        description="held",
        classes=["a", "b"],
        labels=np.arange(len(data)) % 2,
        channels=3,
        image_size=8,
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        pool=decode_pool(threads),
    )


def levels(count: int) -> list[bytes | None]:
    """Images of one grey level each: that of their number."""
    return [image_bytes(np.full((6, 7, 3), i, dtype=np.uint8)) for i in range(count)]


def read(source: EncodedSource, *indices: int, replace_bad: bool = True) -> Read:
    return source.read(np.array(indices, dtype=np.int64), FixedViews(4), 0, replace_bad=replace_bad)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_samples_come_in_the_order_asked_for(threads: int) -> None:
    source: Source = encoded(levels(20), threads)
    result = source.read(np.array([7, 0, 19, 7]), FixedViews(4), 0, replace_bad=True)
    assert result.images.shape == (4, 4, 4, 3)
    np.testing.assert_array_equal(result.images[:, 0, 0, 0], [7, 0, 19, 7])
    np.testing.assert_array_equal(result.labels, [1, 0, 1, 1])
    np.testing.assert_array_equal(result.indices, [7, 0, 19, 7])
    assert result.bad == []


def test_views_are_asked_for_with_the_index_of_the_sample_and_the_size_of_its_image() -> None:
    views = tuple(View(0, i, 4, 4) for i in range(3))
    pixels = smooth(4, 8)
    result = encoded([image_bytes(pixels)] * 3).read(np.arange(3), FixedViews(4, views), 0, replace_bad=True)
    for i in range(3):
        np.testing.assert_array_equal(result.images[i], pixels[:, i : i + 4])


def test_a_bad_image_is_replaced_by_the_next_good_one_with_its_label() -> None:
    data = levels(8)
    data[2], data[3], data[7] = BROKEN, b"", None
    result = read(encoded(data), 1, 2, 7, 3)
    np.testing.assert_array_equal(result.indices, [1, 4, 0, 4])
    np.testing.assert_array_equal(result.images[:, 0, 0, 0], [1, 4, 0, 4])
    np.testing.assert_array_equal(result.labels, [1, 0, 0, 0])
    assert [index for index, _ in result.bad] == [2, 3, 7], "each is told once"
    assert "No such file" in dict(result.bad)[7]


def test_a_bad_image_is_left_out_where_exactness_counts() -> None:
    data = levels(5)
    data[1] = BROKEN
    result = read(encoded(data), 0, 1, 2, replace_bad=False)
    np.testing.assert_array_equal(result.indices, [0, 2])
    np.testing.assert_array_equal(result.labels, [0, 0])
    assert result.images.shape == (2, 4, 4, 3)
    assert [index for index, _ in result.bad] == [1]
    nothing = read(encoded(data), 1, replace_bad=False)
    assert nothing.images.shape == (0, 4, 4, 3)


def test_a_hundred_bad_ones_in_a_row_end_the_search() -> None:
    data: list[bytes | None] = [*levels(3), *([BROKEN] * 150)]
    with pytest.raises(UserError) as caught:
        read(encoded(data), 0, 10)
    assert_helpful(caught.value, "100 images in a row", "held 10", "held 109", "not an image")
    assert read(encoded(data), 60).indices.tolist() == [0]


def test_few_images_all_bad() -> None:
    with pytest.raises(UserError) as caught:
        read(encoded([BROKEN, None]), 0)
    assert_helpful(caught.value, "2 images in a row")


def test_a_subset_never_takes_a_replacement_from_outside() -> None:
    data = levels(6)
    data[2] = BROKEN
    subset = encoded(data).subset(np.array([2, 4, 5]))
    result = read(subset, 0, 1)
    np.testing.assert_array_equal(result.indices, [1, 1])
    np.testing.assert_array_equal(result.images[:, 0, 0, 0], [4, 4])
    assert [subset.name(i) for i in range(3)] == ["held 2", "held 4", "held 5"]
    assert result.bad[0][0] == 0
    np.testing.assert_array_equal(subset.labels, [0, 0, 1])
    assert len(subset.subset(np.array([1]))) == 1


@pytest.mark.parametrize(("count", "threads"), [(0, 2), (1, 4), (64, 0), (64, 2), (65, 3), (1000, 8)])
def test_parts_of_a_batch_cover_it_and_end_with_single_samples(count: int, threads: int) -> None:
    parts = list(batch_parts(count, decode_pool(threads)))
    assert [place for part in parts for place in range(count)[part]] == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1:] in ([1], [])


def test_jpegs_and_others_in_one_batch_whatever_the_threads() -> None:
    """Native code and Pillow, good and bad ones, replaced and not: the same in every division of the work."""
    pixels = [photograph(30 + i, 40, seed=i) for i in range(30)]
    data: list[bytes | None] = [image_bytes(p) if i % 4 == 1 else jpeg(p) for i, p in enumerate(pixels)]
    data[5], data[17], data[18] = BROKEN, jpeg(pixels[17])[:-300], None
    framing = RandomResizedCrop(16, flip=0.5, seed=3)
    indices = np.array([*range(30), 5, 18, 0], dtype=np.int64)
    for replace_bad in (True, False):
        reads = [encoded(data, threads).read(indices, framing, 2, replace_bad=replace_bad) for threads in (0, 1, 2, 5)]
        for other in reads[1:]:
            np.testing.assert_array_equal(other.images, reads[0].images)
            np.testing.assert_array_equal(other.indices, reads[0].indices)
            assert other.bad == reads[0].bad
        assert [index for index, _ in reads[0].bad] == [5, 17, 18]
        assert len(reads[0].indices) == (33 if replace_bad else 28)
        alone = encoded(data, 0).read(indices[8:9], framing, 2, replace_bad=replace_bad)
        np.testing.assert_array_equal(alone.images[0], reads[0].images[8 if replace_bad else 7])


def test_settings_reach_the_decoder() -> None:
    data = jpeg(photograph(60, 80), exif=oriented(6))
    config = DataConfig(decode="exact", exif_orientation=True)
    source = decoded_as(config, encoded([data])).subset(np.array([0]))
    seen = source.read(np.array([0]), FixedViews(60, (View(0, 0, 60, 60),)), 0, replace_bad=True)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(seen.images[0], upright[:60, :60])


def test_no_samples_give_an_empty_read() -> None:
    assert read(encoded(levels(2))).images.shape == (0, 4, 4, 3)
