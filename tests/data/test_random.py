"""Draws are a pure function of their address, and even enough to train with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.random import bits, key, uniform

EVERYTHING = np.arange(20_000, dtype=np.int64)


@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**40), index=st.integers(0, 2**62))
@settings(deadline=None)
def test_a_draw_does_not_depend_on_its_company(seed: int, epoch: int, index: int) -> None:
    alone = bits(seed, "crop", epoch, np.array([index]), 2)
    among = bits(seed, "crop", epoch, np.array([3, index, 8]), 5)
    assert np.array_equal(alone[0], among[1, :2])


def test_draws_stay_what_they_were_when_this_was_written() -> None:
    """A change here changes every run: restarts would no longer go on where they stopped."""
    assert bits(7, "order", 3, np.array([0, 11]), 2).tolist() == [
        [3487619721820746285, 10040029066762029253],
        [4680633945098871289, 17537582800073946085],
    ]


def test_global_random_state_is_neither_read_nor_moved() -> None:
    np.random.seed(1)
    expected = np.random.rand()
    np.random.seed(1)
    first = uniform(0, "crop", 0, EVERYTHING)
    assert np.random.rand() == expected
    assert np.array_equal(first, uniform(0, "crop", 0, EVERYTHING))


@pytest.mark.parametrize("other", [(1, "crop", 0), (0, "flip", 0), (0, "crop", 1)])
def test_seed_stream_and_epoch_each_change_the_draws(other: tuple[int, str, int]) -> None:
    assert key(*other) != key(0, "crop", 0)
    here, there = uniform(0, "crop", 0, EVERYTHING)[:, 0], uniform(*other, EVERYTHING)[:, 0]
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.03


def test_draws_are_even_and_independent() -> None:
    draws = uniform(5, "crop", 2, EVERYTHING, 3)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    for column in draws.T:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        expected = len(column) / 20
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert chi_square < 50  # 19 degrees of freedom: 50 is exceeded once in 7,000 times
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 0.03  # neighbours
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.03  # draws of one sample
