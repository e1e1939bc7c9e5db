"""A run is told once that other processes keep its threads waiting."""

from collections.abc import Iterable
from pathlib import Path

from phalanx.machine.crowding import WINDOW_S, Crowding


def looks(shares: Iterable[float], threads: int = 2) -> list[str]:
    """What is told window by window, where two threads together waited for these shares of it."""
    now, waited = 0.0, 0.0
    crowding = Crowding(threads, Path("runs/one"), lambda: {"1": waited, "2": waited}, lambda: now)
    told = []
    for share in shares:
        assert crowding.look() == ""  # the window is not over yet
        now, waited = now + WINDOW_S, waited + share * WINDOW_S / 2
        told.append(crowding.look())
    return told


def test_it_is_told_once_and_not_for_a_moment() -> None:
    *before, told, after, last = looks([0.1, 0.9, 0.2, 0.8, 0.75, 0.9, 0.9])
    assert [*before, after, last] == [""] * 6
    assert "75 % of the time one of the 2 threads of this run waited for a core" in told
    assert "phalanx train --resume runs/one machine.threads=1" in told


def test_one_thread_has_nobody_to_wait_for() -> None:
    assert looks([0.9] * 4, threads=1) == [""] * 4
