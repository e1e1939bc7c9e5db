"""What flags imply, and what a run keeps when it goes on with another number of workers."""

from typing import Any

import pytest

from phalanx.config.flags import flag_layers, imply_collective, keep_batch
from phalanx.config.resolve import Layer, parse_override, resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError


def flags(**given: Any) -> RunConfig:
    return resolve(imply_collective([], flag_layers(given))).config


def resumed(before: RunConfig, *settings: str) -> RunConfig:
    base = Layer("the run", before.model_dump(mode="json"))
    return resolve([base, *keep_batch(before, [parse_override(setting) for setting in settings])]).config


def config(*settings: str) -> RunConfig:
    return resolve([parse_override(setting) for setting in settings]).config


def test_gpus_are_workers() -> None:
    four = flags(gpus="0, 1,2,5")
    assert (four.exchange.workers, four.exchange.method, four.machine.gpus) == (4, "collective", [0, 1, 2, 5])
    one = flags(gpus="3")
    assert (one.exchange.workers, one.exchange.method) == (1, "local")
    hosts = flags(gpus="0,1", workers=6)  # three hosts, two each
    assert hosts.exchange.workers == 6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gpus": "0,1,2", "workers": 2}, ["exchange.workers=2 contradicts machine.gpus=[0, 1, 2]", "--workers"]),
        ({"gpus": "0,1,0"}, ["names a GPU twice"]),
        ({"gpus": "0,x"}, ["machine.gpus cannot be 'x'", "--gpus"]),
        ({"gpus": ","}, ["at least 1"]),
        ({"gpus": "0", "device": "cpu"}, ["machine.device=cpu", "--gpus", "--device"]),
        ({"min_workers": 3, "workers": 2}, ["exchange.min_workers=3 is more than exchange.workers=2"]),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        flags(**given)
    assert all(part in str(caught.value) for part in told)


def test_a_run_keeps_its_steps_on_fewer_workers_and_back() -> None:
    three = config("exchange.method=collective", "exchange.workers=3", "train.batch_size=32", "optim.accumulate=2")
    two = resumed(three, "exchange.workers=2")
    assert (two.train.global_batch_size, two.micro_batches) == (192, 6)
    assert resumed(two, "exchange.workers=3").micro_batches == 6
    assert resumed(two, "train.length=9ep").micro_batches == 6  # the same number of workers: nothing to keep
    many = resumed(two, "exchange.workers=8")
    assert (many.train.global_batch_size, many.micro_batches) == (192, 8)


def test_synchronised_batch_norm_needs_as_many_parts_for_each_worker() -> None:
    three = config("exchange.method=collective", "exchange.workers=3", "train.batch_size=32", "exchange.sync_bn=true")
    two = resumed(three, "exchange.workers=2")
    assert (two.train.global_batch_size, two.micro_batches) == (96, 2)


def test_steps_that_are_given_anew_are_not_kept() -> None:
    three = config("exchange.method=collective", "exchange.workers=3", "train.batch_size=32")
    assert resumed(three, "exchange.workers=2", "train.batch_size=48").train.global_batch_size is None
    assert resumed(three, "exchange.workers=2", "train.global_batch_size=64").micro_batches == 2


def test_fewer_workers_use_the_first_gpus() -> None:
    three = flags(gpus="4,5,6")
    assert resumed(three, "exchange.workers=2").machine.gpus == [4, 5]
    assert resumed(three, "exchange.workers=2", "machine.gpus=[5, 6]").machine.gpus == [5, 6]


def test_a_run_that_goes_on_elsewhere_keeps_its_rates() -> None:
    """A warm-up from one worker's rate is counted in micro-batches: these stay, or the start is written down."""
    four = config("exchange.workers=4", "exchange.method=collective", "schedule.warmup_start=one-worker")
    assert four.schedule.start_share(four.micro_batches) == 1 / 4
    for workers in (1, 2, 3, 8):
        on = resumed(
            four, f"exchange.workers={workers}", f"exchange.method={'local' if workers == 1 else 'collective'}"
        )
        assert on.schedule.start_share(on.micro_batches) == 1 / 4, workers
    synced = config(
        "exchange.workers=4", "exchange.method=collective", "exchange.sync_bn=true", "schedule.warmup_start=one-worker"
    )
    fewer = resumed(synced, "exchange.workers=2")
    assert (fewer.micro_batches, fewer.schedule.start_share(fewer.micro_batches)) == (2, 1 / 4)
    again = resumed(fewer, "exchange.workers=1", "exchange.method=local")
    assert again.schedule.start_share(again.micro_batches) == 1 / 4
