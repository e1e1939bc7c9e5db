from typing import Any

import pytest

from phalanx.engine.profile.advice import advise
from tests.engine.profile.made import profile, recording


def changed(
    found: dict[str, Any], parts: dict[str, float] | None = None, kinds: dict[str, float] | None = None
) -> None:
    """Give a worker other times, in milliseconds of its step of 100."""
    worker = found["workers"][0]
    worker["parts"] |= parts or {}
    worker["kinds"] = [{"kind": kind, "ms": ms, "calls": 10} for kind, ms in (kinds or {}).items()]


@pytest.mark.parametrize(
    ("parts", "kinds", "settings", "says"),
    [
        ({"data": 40.0}, {}, {"data": "photos"}, "phalanx bench io photos"),
        ({}, {"Python and dispatch": 30.0}, {}, "train.batch_size=32"),
        ({}, {"convolution": 60.0}, {"precision": "fp32"}, "--precision bf16"),
        ({}, {"normalization": 30.0, "activation": 20.0}, {"fast_path": "off"}, "machine.fast_path=auto"),
        ({}, {"convolution": 60.0}, {"fast_path": "off", "channels_last": False}, "machine.channels_last=auto"),
        ({}, {"copies and casts": 20.0}, {}, "one layout"),
        ({"update": 20.0}, {}, {}, "optim.accumulate=2"),
        ({"forward": 30.0, "backward": 60.0}, {}, {"threads": 1}, "machine.threads=auto"),
        ({"other": 20.0}, {}, {"log_every": 1}, "train.log_every=50"),
        ({"exchange": 30.0}, {}, {"workers": 2}, "--compress bf16"),
        ({"exchange": 30.0}, {}, {"workers": 2, "compress": "bf16"}, "optim.accumulate=2"),
    ],
)
def test_a_rule_speaks_where_its_numbers_are_large(
    parts: dict[str, float], kinds: dict[str, float], settings: dict[str, Any], says: str
) -> None:
    found = profile(recording(), **settings)
    changed(found, {"data": 0.0, "update": 0.0, "other": 0.0, **parts}, kinds)
    (advice,) = advise(found)
    assert says in advice.change
    assert "%" in advice.reason


def test_nothing_is_advised_where_nothing_is_large() -> None:
    found = profile(recording())
    changed(found, {"data": 4.0, "update": 5.0, "other": 4.0}, {"convolution": 80.0, "Python and dispatch": 15.0})
    assert advise(found) == []


def test_threads_that_were_chosen_are_left_alone() -> None:
    found = profile(recording(), threads=1, threads_set=False)
    changed(found, {"data": 0.0, "update": 0.0, "other": 0.0, "forward": 30.0, "backward": 60.0})
    assert advise(found) == []


def test_three_at_most_the_largest_first() -> None:
    found = profile(recording(), log_every=1)
    changed(
        found, {"data": 10.0, "other": 15.0, "update": 40.0}, {"Python and dispatch": 60.0, "copies and casts": 6.0}
    )
    assert [round(one.share, 2) for one in advise(found)] == [0.6, 0.2, 0.15]


def test_the_wait_for_a_slow_worker_is_not_blamed_on_the_exchange() -> None:
    found = profile(recording(exchange_ms=40), recording(extra_ms=38, exchange_ms=2))
    reasons = [one.reason for one in advise(found)]
    assert any("trainer-1 on" in reason and "backward" in reason for reason in reasons)
    assert not any("exchange takes" in reason for reason in reasons)
