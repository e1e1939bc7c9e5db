import json
import math
from dataclasses import asdict

import pytest

from phalanx.config.batch import samples_per_step
from phalanx.config.durations import Duration
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.errors import UserError
from phalanx.optim.schedule import Schedule, make_schedule, scaled_rate


def schedule(*settings: str, total: int = 100) -> Schedule:
    config = resolve([parse_override(f"schedule.{setting}") for setting in settings]).config.schedule

    def in_steps(duration: Duration) -> int:
        return duration.steps(steps_per_epoch=10, samples_per_step=1, total_steps=total)

    return make_schedule(config, peak=0.5, total=total, in_steps=in_steps)


def test_constant() -> None:
    assert {schedule("kind=constant")(step) for step in range(100)} == {0.5}


def test_steps_drop_at_their_places() -> None:
    rate = schedule("kind=step", "milestones=[3ep, 60%]", "factor=0.1")
    assert [rate(step) for step in (0, 29, 30, 59, 60, 99)] == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005, 0.005])
    every = schedule("kind=step", "every=4ep", "factor=0.5")
    assert [every(step) for step in (39, 40, 80)] == pytest.approx([0.5, 0.25, 0.125])


def test_cosine_reaches_its_floor() -> None:
    rate = schedule("kind=cosine", "floor=0.1")
    assert rate(0) == 0.5
    assert rate(50) == pytest.approx(0.5 * 0.55)
    assert rate(100) == pytest.approx(0.05)
    assert all(rate(step) > rate(step + 1) for step in range(99))


def test_polynomial() -> None:
    assert schedule("kind=polynomial", "power=2")(50) == pytest.approx(0.5 * 0.25)


@pytest.mark.parametrize(("kind", "half"), [("linear", 0.5), ("power", 0.25), ("sqrt", math.sqrt(0.5))])
def test_warm_up_rises_per_iteration_to_the_peak(kind: str, half: float) -> None:
    rate = schedule("kind=cosine", "warmup=1ep", f"warmup_kind={kind}")
    assert rate(4) == pytest.approx(0.5 * half)
    assert rate(9) == pytest.approx(0.5)
    assert rate(10) == 0.5
    assert all(rate(step) < rate(step + 1) for step in range(8))


def test_goyal_warm_up_starts_at_a_share_of_the_peak() -> None:
    rate = schedule("kind=step", "milestones=[30ep]", "warmup=5ep", "warmup_start=0.125", total=900)
    assert rate(0) == pytest.approx(0.5 * (0.125 + 0.875 / 50))
    assert rate(49) == pytest.approx(0.5)


@pytest.mark.parametrize(("workers", "accumulate"), [(1, 1), (8, 1), (32, 1), (1, 8), (4, 2), (256, 1)])
def test_the_papers_warm_up_starts_at_one_workers_rate_whatever_their_number(workers: int, accumulate: int) -> None:
    """arXiv 1706.02677, 2.2: from the rate of one worker's batch, by equal amounts, to that of all after 5 epochs."""
    given = [f"exchange.workers={workers}", "exchange.method=collective", f"optim.accumulate={accumulate}"]
    config = resolve([*load_recipe("imagenet-resnet50").layers, *map(parse_override, given)]).config
    samples, parts = samples_per_step(config), workers * accumulate
    assert samples == 32 * parts
    peak = scaled_rate(config.optim.lr, config.optim.lr_per, samples)

    def in_steps(duration: Duration) -> int:
        return duration.steps(steps_per_epoch=20, samples_per_step=samples, total_steps=1800)

    rate = make_schedule(config.schedule, peak=peak, total=1800, in_steps=in_steps, micro_batches=config.micro_batches)
    assert rate(0) == pytest.approx(0.1 * 32 / 256, rel=1e-12)
    assert peak == pytest.approx(0.1 * samples / 256, rel=1e-12)
    increments = [rate(step + 1) - rate(step) for step in range(100)]
    assert increments == pytest.approx([(peak - 0.0125) / 100] * 100, abs=1e-12)
    assert [rate(step) for step in (100, 599, 600, 1200, 1600)] == pytest.approx(
        [peak, peak, peak / 10, peak / 100, peak / 1000]
    )
    # What a server is told of it is the same.
    assert Schedule(**json.loads(json.dumps({**asdict(rate), "milestones": []})))(37) == rate(37)


def test_one_of_so_many_is_a_start_of_its_own() -> None:
    assert schedule("kind=step", "milestones=[30ep]", "warmup=5ep", "warmup_start=one-of-32")(0) == 0.5 / 32
    with pytest.raises(UserError, match="warmup_start"):
        schedule("warmup_start=one-of-0")
    with pytest.raises(UserError, match="warmup_start"):
        schedule("warmup_start=two-workers")


def test_one_cycle_rises_for_a_third_and_falls() -> None:
    rate = schedule("kind=one-cycle")
    values = [rate(step) for step in range(100)]
    assert max(range(100), key=values.__getitem__) in (29, 30)
    assert values[0] < 0.05
    assert values[99] < 0.01


def test_linear_scaling_rule() -> None:
    assert scaled_rate(0.1, 256, 8192) == pytest.approx(3.2)
    assert scaled_rate(0.1, None, 8192) == 0.1
