"""A run is told once that other processes keep its threads waiting."""

from collections.abc import Iterable

import pytest

from phalanx.machine.crowding import WINDOW_S, Crowding


def looks(shares: Iterable[float], threads: int = 2) -> list[float | None]:
    """What is told window by window, where each thread waited for these shares of it."""
    now, waited = 0.0, 0.0
    crowding = Crowding(threads, lambda: {"1": waited, "2": waited}, lambda: now)
    told = []
    for share in shares:
        assert crowding.look() is None  # the window is not over yet
        now, waited = now + WINDOW_S, waited + share * WINDOW_S
        told.append(crowding.look())
    return told


def test_it_is_told_once_and_not_for_a_moment() -> None:
    assert looks([0.1, 0.9, 0.2, 0.8, 0.75, 0.9, 0.9]) == [None] * 4 + [pytest.approx(0.75)] + [None] * 2


def test_one_thread_has_nobody_to_wait_for() -> None:
    assert looks([0.9] * 4, threads=1) == [None] * 4
