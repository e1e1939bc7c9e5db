"""Digits and synthetic data."""

import numpy as np
import pytest

from phalanx.config.schema import SyntheticConfig
from phalanx.data.sources import embedded
from phalanx.data.sources.embedded import open_digits, open_synthetic
from tests.data.samples import FixedViews


def test_digits_are_divided_the_same_way_for_everybody() -> None:
    train, val = open_digits("train", channels=None), open_digits("val", channels=None)
    assert (len(train), len(val)) == (1442, 355)
    assert not set(train.rows) & set(val.rows)
    counts = np.bincount(train.labels) + np.bincount(val.labels)
    np.testing.assert_array_equal(np.bincount(val.labels), counts // 5)
    assert (train.images.shape[1:], train.image_size, train.images.max()) == ((8, 8, 1), 16, 255)
    assert train.read(np.arange(3), FixedViews(16), 0, replace_bad=True).images.shape == (3, 16, 16, 1)
    assert train.name(4) == "digits train #4"


def test_digits_in_colour() -> None:
    source = open_digits("val", channels=3)
    assert (source.channels, len(source.mean)) == (3, 3)


@pytest.mark.parametrize(("samples", "classes", "distinct"), [(1000, 10, 250), (3, 10, 3), (100_000, 1000, 256)])
def test_synthetic_has_few_distinct_images(samples: int, classes: int, distinct: int) -> None:
    config = SyntheticConfig(samples=samples, classes=classes, size=12)
    source = open_synthetic("train", config, channels=None)
    assert (len(source), len(source.classes), len(source.images)) == (samples, classes, distinct)
    assert "synthetic" in source.description
    assert source.labels.max() == min(samples, classes) - 1
    if classes <= distinct:
        label_of_row = dict(zip(source.rows.tolist(), source.labels.tolist(), strict=True))
        assert [label_of_row[row] for row in source.rows.tolist()] == source.labels.tolist()


def test_synthetic_is_always_the_same_and_differs_between_parts() -> None:
    config = SyntheticConfig(samples=4, val_samples=4, classes=2, size=9, channels=5)
    train, again = (open_synthetic("train", config, channels=None).images for _ in range(2))
    val = open_synthetic("val", config, channels=None).images
    np.testing.assert_array_equal(train, again)
    assert np.mean(train == val) < 0.05
    assert abs(train.mean() - 127.5) < 10
    assert open_synthetic("train", config, channels=3).channels == 3


def test_large_synthetic_images_stay_within_the_memory_of_the_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "BANK_BYTES", 2**20)
    source = open_synthetic("train", SyntheticConfig(samples=500, classes=2, size=256), channels=None)
    assert (source.images.shape, len(source)) == ((4, 256, 256, 3), 500)


def test_digits_are_those_that_scikit_learn_gives() -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    values, labels = embedded._digits()
    np.testing.assert_array_equal(values, theirs.data)
    np.testing.assert_array_equal(labels, theirs.target)
