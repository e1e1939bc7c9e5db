"""Images without labels: a fixed share of every micro-batch, without any that validation judges by."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import PadCrop
from phalanx.data.order import Share
from phalanx.data.sampling import Shuffled, make_sampler
from phalanx.data.sources.open import open_data
from phalanx.data.training import open_beside, training_pipeline
from phalanx.data.unlabeled import MixedSampler, WithUnlabeled, open_unlabeled
from phalanx.errors import UserError

DIGITS = open_data(DataConfig(), threads=0)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.9])
def test_any_stretch_of_an_epoch_has_the_share(share: float) -> None:
    sampler = MixedSampler(Shuffled(101), 101, 40, share)
    order = sampler.order(seed=3, epoch=2)
    assert len(order) == sampler.epoch_samples == round(101 / (1 - share))
    samples = order % 141
    assert sorted(samples[samples < 101].tolist()) == list(range(101))  # each labelled sample once
    exact = (len(order) - 101) / len(order)
    for low in range(0, len(order) - 16, 7):
        assert abs(int((samples[low : low + 16] >= 101).sum()) - 16 * exact) <= 1
    assert len(np.unique(order)) == len(order)  # a repeat has a number of its own
    assert sampler.order(3, 2).tolist() == order.tolist() != sampler.order(3, 3).tolist()


def test_repeats_of_labelled_samples_stay_repeats() -> None:
    labels = np.array([0] * 6 + [1] * 2)
    config = DataConfig(sampling="oversample")
    order = MixedSampler(make_sampler(config, labels), 8, 4, 0.5).order(0, 0)
    labelled = order[order % 12 < 8]
    assert np.bincount(labelled % 12).tolist() == [1] * 6 + [3, 3]
    assert sorted((labelled // 12).tolist()) == [0] * 8 + [1] * 2 + [2] * 2


def test_samples_come_back_in_the_order_that_was_asked_for() -> None:
    unlabeled = DIGITS.val.subset(np.arange(5))
    unlabeled.labels = np.full(5, -1)
    both = WithUnlabeled(DIGITS.train, unlabeled)
    first, framing = len(DIGITS.train), PadCrop(8, 2)
    asked = np.array([first + 4, 3, first, 0, 7, first + 1])
    read = both.read(asked, framing, 1, replace_bad=True)
    assert read.indices.tolist() == asked.tolist()
    assert read.labels.tolist() == [-1, DIGITS.train.labels[3], -1, *DIGITS.train.labels[[0, 7]], -1]
    for row, index in enumerate(asked.tolist()):
        alone = both.read(np.array([index]), framing, 1, replace_bad=True)
        assert np.array_equal(alone.images[0], read.images[row])
    assert both.name(first + 4) == DIGITS.val.name(4)


def test_validation_images_are_left_out(tmp_path: Path) -> None:
    """Of ten images of the training part and three of validation, one of them saved anew as a JPEG."""
    samples = [*((DIGITS.train, index) for index in range(10)), *((DIGITS.val, index) for index in range(3))]
    for number, (split, index) in enumerate(samples):
        pixels = np.frombuffer(split.stored(index), dtype=np.uint8).reshape(8, 8)
        name = f"{number}.jpg" if number == 12 else f"{number}.png"
        Image.fromarray(pixels).save(tmp_path / name, quality=95)
    found, note = open_unlabeled(str(tmp_path), DataConfig(), DIGITS.train, DIGITS.val, threads=1)
    kept = {Path(found.name(index)).name for index in range(len(found))}
    assert not kept & {"10.png", "11.png", "12.jpg"}
    assert len(kept) >= 8  # digits are small: some look alike
    assert f"{len(kept)} images without labels from {tmp_path}; {13 - len(kept)} were left out" in note
    assert set(found.labels.tolist()) == {-1}


def test_nothing_but_validation_images_is_refused(tmp_path: Path) -> None:
    pixels = np.frombuffer(DIGITS.val.stored(0), dtype=np.uint8).reshape(8, 8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    with pytest.raises(UserError, match="all 1 images of"):
        open_unlabeled(str(tmp_path), DataConfig(), DIGITS.train, DIGITS.val, threads=1)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_images_is_named_with_its_setting(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=rf"distill\.unlabeled={tmp_path}/{name}: "):
        open_unlabeled(str(tmp_path / name), DataConfig(), DIGITS.train, DIGITS.val, threads=1)


def test_workers_share_the_same_micro_batches() -> None:
    settings = ("distill.teachers=[x]", "distill.unlabeled=digits", "distill.unlabeled_share=0.25", "train.seed=4")
    config = resolve([parse_override(one) for one in settings]).config
    unlabeled, notes = open_beside(config, DIGITS, 1)
    assert "25% of each micro-batch" in notes[0]

    def parts(share: Share) -> list[list[int]]:
        made = training_pipeline(config, DIGITS.train, batch=32, threads=1, share=share, unlabeled=unlabeled)
        batch = made.prepare(next(made.works(1, 64)))
        assert all((micro.labels < 0).sum() == 4 for micro in batch.micro)
        return [micro.indices.tolist() for micro in batch.micro]

    assert parts(Share(0, 1, 2)) == [*parts(Share(0, 2)), *parts(Share(1, 2))]
