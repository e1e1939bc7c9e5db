"""Progressive resizing: which size is used when, what is refused, and that a run reports it."""

from pathlib import Path

import pytest
import torch

from phalanx.config.durations import Duration
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import resolve
from phalanx.config.schema import AugmentConfig, MachineConfig
from phalanx.data.base import MicroBatch
from phalanx.engine.inputs import Inputs
from phalanx.engine.loop import StepPlan, make_plan
from phalanx.engine.sizes import plan_sizes
from phalanx.errors import UserError
from phalanx.machine.settings import choose
from phalanx.runs.events import read_events
from tests.conftest import LEAN, train_digits
from tests.data.samples import assert_helpful

PLAN = StepPlan(steps_per_epoch=25, samples_per_step=100, total_steps=200, evaluate_every=200, save_every=200)


def asked(*sizes: tuple[int, str]) -> list[tuple[int, Duration]]:
    return [(size, Duration.parse(until)) for size, until in sizes]


def test_each_size_lasts_until_its_step() -> None:
    sizes = plan_sizes(asked((16, "2ep"), (24, "50%")), PLAN, 32)
    assert sizes == ((50, 16), (100, 24))
    inputs = Inputs(choose(MachineConfig()), AugmentConfig(), [0.5] * 3, [0.25] * 3, 0, sizes)
    pixels = torch.full((2, 3, 32, 32), 191, dtype=torch.uint8)
    micro = MicroBatch(0, pixels, torch.zeros(2, dtype=torch.int64), torch.arange(2))
    for step, size in ((0, 16), (49, 16), (50, 24), (99, 24), (100, 32), (199, 32)):
        images, _ = inputs.training(micro, step // 25, 0, step)
        assert images.shape == (2, 3, size, size)
        assert images.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(images, torch.full_like(images, (191 / 255 - 0.5) / 0.25))


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        (asked((32, "2ep")), ("32 pixels until 2ep", "the full size is 32", "data.image_size")),
        (asked((24, "5ep"), (16, "2ep")), ("16 pixels until 2ep", "step 50", "ends at step 125", "sort the sizes")),
        (asked((16, "0st")), ("16 pixels until 0st", "not be used in any step")),
    ],
)
def test_sizes_that_make_no_sense_are_refused(sizes: list[tuple[int, Duration]], parts: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        plan_sizes(sizes, PLAN, 32)
    assert_helpful(caught.value, *parts)


def test_a_size_that_a_model_cannot_take_is_refused_before_it_trains(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        train_digits(tmp_path / "run", "model.name=cifar_fast", "train.sizes=[[8, 1ep]]")
    assert_helpful(caught.value, "cifar_fast cannot take images of 8 pixels", "too small", "ResNet")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("length", "whole"), [("2st", "then 16"), ("1st", "16 never")])
def test_a_run_reports_its_sizes(tmp_path: Path, length: str, whole: str) -> None:
    small = ["model.name=wrn10_1", f"train.length={length}", "train.sizes=[[8, 1st]]"]
    start, *_ = read_events(train_digits(tmp_path / "run", *small, *LEAN))
    assert start["decisions"]["image size"] == f"8 until step 1, {whole}"


def test_the_recipe_changes_sizes_between_epochs() -> None:
    config = resolve(load_recipe("cifar10-fast").layers).config
    plan = make_plan(config, 50_000, 2_000)
    assert plan_sizes(config.train.sizes, plan, 32) == ((50, 16), (125, 24))  # of 225 steps, 25 an epoch
