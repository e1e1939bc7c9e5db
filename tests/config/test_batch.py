"""A step of more samples than the data has becomes the whole data, the same on any division of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.batch import cut_to_fit, fit_batch, samples_per_step
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError


def config(*words: str) -> RunConfig:
    return resolve([parse_override(word) for word in words]).config


@pytest.mark.parametrize(
    ("words", "samples", "became"),
    [
        (["train.batch_size=128"], 24, {"batch_size": 24}),
        (["train.batch_size=24"], 24, {"batch_size": 24}),
        (["train.global_batch_size=128"], 24, {"global_batch_size": 24}),
        (["train.batch_size=16", "optim.accumulate=2"], 24, {"batch_size": 12}),
        (["train.batch_size=16", "optim.accumulate=2"], 25, {"global_batch_size": 25, "micro_batches": 2}),
        (["train.global_batch_size=64", "train.micro_batches=3"], 25, {"global_batch_size": 25, "micro_batches": 3}),
    ],
)
def test_it_becomes_what_the_data_has(words: list[str], samples: int, became: dict[str, int]) -> None:
    before, after = config(*words), fit_batch(config(*words), samples)
    assert after.train == before.train.model_copy(update=became)
    assert samples_per_step(after) == samples
    assert fit_batch(after, samples) == after


@given(workers=st.integers(1, 5), accumulate=st.integers(1, 4), each=st.integers(2, 40), samples=st.integers(10, 300))
@settings(deadline=None, max_examples=60)
def test_workers_and_accumulated_micro_batches_are_the_same(
    workers: int, accumulate: int, each: int, samples: int
) -> None:
    update = {"exchange": {"method": "collective", "workers": workers}, "optim": {"accumulate": accumulate}}
    many = RunConfig.model_validate({**update, "train": {"batch_size": each}})
    alone = RunConfig.model_validate({"optim": {"accumulate": workers * accumulate}, "train": {"batch_size": each}})
    one, other = fit_batch(many, samples), fit_batch(alone, samples)
    assert samples_per_step(one) == samples_per_step(other) == min(samples, each * workers * accumulate)
    assert one.micro_batches == other.micro_batches == workers * accumulate


def test_fewer_than_two_for_each_worker_are_refused() -> None:
    workers = ("exchange.method=collective", "exchange.workers=4")
    assert samples_per_step(fit_batch(config(*workers), 8)) == 8
    with pytest.raises(UserError, match="7 training samples cannot be shared by 4 workers") as caught:
        fit_batch(config(*workers), 7)
    assert "3 workers or fewer" in caught.value.remedy
    with pytest.raises(UserError, match="1 training sample cannot be shared by 1 worker") as caught:
        fit_batch(config(), 1)
    assert "more data" in caught.value.remedy


@pytest.mark.parametrize(
    ("words", "fits", "parts"),
    [
        (["train.batch_size=256"], 300, 1),
        (["train.batch_size=256"], 256, 1),
        (["train.batch_size=256"], 255, 2),
        (["train.batch_size=256", "optim.accumulate=2"], 60, 10),  # 512 samples in parts of 52
        (["train.global_batch_size=100", "train.micro_batches=3"], 16, 9),
    ],
)
def test_micro_batches_are_cut_until_they_fit_and_a_step_keeps_its_samples(
    words: list[str], fits: int, parts: int
) -> None:
    before = config(*words)
    after = cut_to_fit(before, fits)
    assert (samples_per_step(after), after.micro_batches) == (samples_per_step(before), parts)
    assert -(-samples_per_step(after) // parts) <= fits
    assert cut_to_fit(after, fits) == after


@pytest.mark.parametrize("fits", [-3, 0, 1])
def test_two_samples_have_to_fit(fits: int) -> None:
    with pytest.raises(UserError, match="two samples does not fit"):
        cut_to_fit(config("train.batch_size=16"), fits)
