"""Ranges of settings, as they are typed."""

import pytest

from phalanx.config.ranges import Range, Space, parse_range, space_from_data, space_to_data, split_ranges
from phalanx.errors import UserError


def test_two_numbers_with_two_dots_between_them_are_a_range() -> None:
    words = ["optim.lr=1e-3..1:log", "train.batch_size=16..256", "optim.momentum=0.5..0.99", "data.source=../photos"]
    others, ranges = split_ranges([*words, "optim.ema=null,0.99"])
    assert others == ["data.source=../photos", "optim.ema=null,0.99"]
    assert ranges == {
        "optim.lr": Range(0.001, 1.0, log=True),
        "train.batch_size": Range(16, 256, whole=True),
        "optim.momentum": Range(0.5, 0.99),
    }
    assert str(ranges["optim.lr"]) == "0.001..1:log"
    space: Space = {**ranges, "schedule.kind": ["cosine", "constant"]}
    assert space_from_data(space_to_data(space)) == space
    assert parse_range("model.name", "nets.py:Net") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1..0.1", "smaller one"),
        ("0..1:log", "logarithm"),
        ("0.1..1:square", "'square' is not known"),
        ("0.1..", "two numbers"),
        ("0.1..high", "two numbers"),
    ],
)
def test_what_is_no_range_is_explained(text: str, why: str) -> None:
    with pytest.raises(UserError, match="is not a range") as caught:
        parse_range("optim.lr", text)
    assert why in caught.value.why
    assert "optim.lr=0.01..1:log" in caught.value.remedy
