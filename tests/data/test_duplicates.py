import io

import numpy as np
import pytest
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.duplicates import Copy, Fingerprints, copies_across, copies_within, fingerprints, perceptual_hashes
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.embedded import open_digits
from tests.data.samples import photograph


def source_of(*images: Pixels) -> ArraySource:
    labels = np.zeros(len(images), dtype=np.int64)
    return array_source("photos", "photos", np.stack(images), labels, ["one"], image_size=96, channels=None)


def known(source: ArraySource) -> Fingerprints:
    return fingerprints(source, 2, lambda count: None)


def saved_again(image: Pixels, quality: int, scale: float) -> Pixels:
    file, (height, width) = io.BytesIO(), image.shape[:2]
    Image.fromarray(image).resize((int(width * scale), int(height * scale))).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB").resize((width, height)))


@pytest.mark.parametrize(("quality", "scale"), [(95, 1.0), (40, 1.0), (75, 0.5)])
def test_pictures_saved_again_are_found(quality: int, scale: float) -> None:
    originals = [photograph(seed) for seed in range(40)]
    copies = source_of(*(saved_again(originals[seed], quality, scale) for seed in (3, 31)), photograph(99))
    assert copies_across(known(copies), known(source_of(*originals))) == [
        Copy(0, 3, exact=False),
        Copy(1, 31, exact=False),
    ]


def test_exact_copies_win_over_pictures_that_look_the_same() -> None:
    one, other = photograph(1), photograph(2)
    within = known(source_of(saved_again(one, 95, 1.0), one, other, one))
    assert copies_across(known(source_of(one)), within) == [Copy(0, 1, exact=True)]
    assert copies_within(within) == [[1, 3]]


def test_different_digits_are_no_copies() -> None:
    """Simple pictures have near hashes; their thumbnails tell them apart."""
    train, val = open_digits("train", channels=None), open_digits("val", channels=None)
    assert copies_across(known(val), known(train)) == []


def test_blank_pictures_are_copies_only_by_their_bytes() -> None:
    grey, darker = np.full((96, 96, 3), 90, np.uint8), np.full((96, 96, 3), 80, np.uint8)
    assert copies_across(known(source_of(grey)), known(source_of(darker))) == []
    assert copies_across(known(source_of(grey)), known(source_of(darker, grey))) == [Copy(0, 1, exact=True)]


def test_hashes_ignore_brightness_and_contrast() -> None:
    thumbnail = photograph(5, 32).mean(axis=-1, dtype=np.float32)[None]
    first, second = perceptual_hashes(thumbnail)[0], perceptual_hashes(thumbnail * 0.5 + 40)[0]
    assert int(first ^ second).bit_count() <= 2
