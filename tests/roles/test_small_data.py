"""Small and uneven data: steps that the data can fill, rare classes repeated, and what users are told."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from phalanx.config.resolve import parse_override, resolve
from phalanx.errors import UserError
from phalanx.roles.data_notes import data_notes
from phalanx.roles.request import Request
from phalanx.runs.events import read_events
from phalanx.runs.used_samples import samples_used
from tests.conftest import LEAN
from tests.roles.test_trainer import assert_same_run, final, train

TINY = ("model.name=wrn10_1", "data.image_size=8", "optim.lr_per=32", "train.log_every=1", *LEAN)


def photographs(root: Path, **classes: int) -> Path:
    """Class folders with so many images each."""
    generator = np.random.default_rng(0)
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(root / name / f"{number}.png")
    return root


def test_a_batch_larger_than_the_data_is_made_smaller_and_told(tmp_path: Path) -> None:
    data = photographs(tmp_path / "data", cat=14, dog=14)
    settings = [*TINY, f"data.source={data}", "data.val_share=0.1", "train.batch_size=128", "schedule.kind=constant"]
    said = train(tmp_path / "whole", *settings, "train.length=4ep")
    assert "batch: 26 samples a step (the data has 26; 128 were asked)\n" in said
    start = next(record for record in read_events(tmp_path / "whole") if record["kind"] == "start")
    assert (start["steps_per_epoch"], start["samples_per_step"]) == (1, 26)
    config = yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())
    assert config["train"]["batch_size"] == 26
    rates = [record["lr"] for record in read_events(tmp_path / "whole") if record["kind"] == "step"]
    assert rates[-1] == pytest.approx(0.1 * 26 / 32), "the linear scaling rule follows the real batch"
    train(tmp_path / "half", *settings, "train.length=2ep")
    said = train(tmp_path / "half", "train.length=4ep", resume=True)
    assert "batch: 26 samples a step\n" in said
    assert_same_run(tmp_path / "whole", tmp_path / "half")


def test_micro_batches_share_the_smaller_batch(tmp_path: Path) -> None:
    data = photographs(tmp_path / "data", cat=14, dog=15)
    said = train(tmp_path / "run", *TINY, f"data.source={data}", "train.length=2st", "optim.accumulate=4")
    assert "batch: 26 samples a step (the data has 26; 256 were asked) = 6 or 7 a micro-batch × 4 accumulated" in said
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["train"]["global_batch_size"], config["train"]["micro_batches"]) == (26, 4)


def test_too_few_samples_are_refused(tmp_path: Path) -> None:
    data = photographs(tmp_path / "data", cat=1, dog=1)
    with pytest.raises(UserError, match="too small for a validation holdout"):
        train(tmp_path / "run", *TINY, f"data.source={data}")
    assert not (tmp_path / "run").exists()


def test_rare_classes_are_repeated_in_a_longer_epoch(tmp_path: Path) -> None:
    data = photographs(tmp_path / "data", common=40, rare=5)
    settings = [*TINY, f"data.source={data}", "train.batch_size=16", "schedule.kind=constant", "eval.every=100%"]
    said = train(tmp_path / "whole", *settings, "data.sampling=oversample", "train.length=2ep")
    assert "epoch: 72 samples of 40 images (data.sampling=oversample)\n" in said
    records = read_events(tmp_path / "whole")
    start = next(record for record in records if record["kind"] == "start")
    assert (start["train_samples"], start["epoch_samples"], start["steps_per_epoch"]) == (40, 72, 5)
    assert [record["samples"] for record in records if record["kind"] == "epoch"] == [72, 72]
    assert {epoch: used.tolist() for epoch, used in samples_used(records).items()} == {1: [1] * 72, 2: [1] * 72}
    train(tmp_path / "half", *settings, "data.sampling=oversample", "train.length=8st")
    with pytest.raises(UserError, match="the run cannot go on from sample 48: an epoch has 40"):
        train(tmp_path / "half", "data.sampling=shuffle", "train.length=9ep", resume=True)
    train(tmp_path / "half", "data.sampling=oversample", "train.length=2ep", resume=True)
    one, other = (final(tmp_path / name)["model"] for name in ("whole", "half"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def notes(*settings: str, train_images: int = 2000, val_images: int = 200, init_from: Path | None = None) -> list[str]:
    resolved = resolve([parse_override(each) for each in settings])
    return data_notes(Request(resolved, "test", init_from=init_from), train_images, val_images)


def test_few_images_and_twice_favoured_classes_are_told() -> None:
    assert notes("model.name=resnet18") == []
    (few,) = notes("model.name=resnet18", train_images=54)
    assert few.startswith("54 training images are few")
    assert "--pretrained" in few
    for started in (["model.name=resnet18", "model.pretrained=true"], ["model.name=cifar_resnet8"]):
        assert notes(*started, train_images=54) == []
    assert notes("model.name=resnet18", train_images=54, init_from=Path("weights")) == []
    (judged,) = notes(val_images=6)
    assert judged.startswith("6 validation images: each is 16.7 % of the accuracy; --folds 5")
    assert notes("data.folds=5", "data.fold=1", val_images=6) == []
    (twice,) = notes("loss.class_weights=balanced", "data.sampling=oversample")
    assert "both favour rare classes" in twice


def test_weights_of_other_channels_name_the_setting(tmp_path: Path) -> None:
    short = ["model.name=wrn10_1", "train.length=1st", *LEAN]
    train(tmp_path / "colour", *short, "data.channels=3")
    with pytest.raises(UserError, match="do not fit the model") as caught:
        train(tmp_path / "grey", *short, init_from=tmp_path / "colour")
    assert caught.value.remedy.startswith("data.channels=3: the weights are of a model for colour images")
    train(tmp_path / "fine", *short, "data.channels=3", init_from=tmp_path / "colour")
    train(tmp_path / "grey", *short)
    with pytest.raises(UserError, match="do not fit the model") as caught:
        train(tmp_path / "other", *short, "data.channels=3", init_from=tmp_path / "grey")
    assert caught.value.remedy.startswith("data.channels=1: the weights are of a model for grey images")
