"""Grids of settings, as they are typed."""

import pytest

from phalanx.config.grid import combinations, parse_grid, split_values
from phalanx.errors import UserError


def test_values_are_separated_by_commas_outside_of_brackets_and_quotes() -> None:
    assert split_values("0.1,0.2") == ["0.1", "0.2"]
    assert split_values("[30ep, 60ep],[45ep]") == ["[30ep, 60ep]", "[45ep]"]
    assert split_values("'a,b',c") == ["'a,b'", "c"]
    plain, grid = parse_grid(["optim.lr=0.1,2e-1", "model.freeze=[conv1, layer1]", "optim.ema=null,0.99"])
    assert plain == ["model.freeze=[conv1, layer1]"]
    assert grid["optim.ema"] == [None, 0.99]
    assert [float(value) for value in grid["optim.lr"]] == [0.1, 0.2]


def test_every_combination_comes_once() -> None:
    found = list(combinations({"a": [1, 2], "b": ["x", "y"]}))
    assert found == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("word", ["optim.lr=", "optim.lr=,", "optim.lr=0.1,,0.2", "optim.lr=0.1,"])
def test_empty_values_are_refused(word: str) -> None:
    with pytest.raises(UserError, match="empty value") as caught:
        parse_grid([word])
    assert "optim.lr=A,B,C" in caught.value.remedy


def test_a_key_is_given_once() -> None:
    with pytest.raises(UserError, match=r"optim\.lr is given twice"):
        parse_grid(["optim.lr=1,2", "optim.lr=3,4"])
