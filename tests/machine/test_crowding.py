"""A run is told once that its threads wait for cores."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phalanx.machine.contention import core_waits
from phalanx.machine.crowding import WINDOW_S, Crowding, compute_waits


def looks(shares: Iterable[float], threads: int = 2) -> list[str]:
    """What is told window by window, where one thread waited for these shares of it, and many a little."""
    now, waited = 0.0, 0.0
    others = [str(task) for task in range(2, 66)]
    crowding = Crowding(
        threads, Path("runs/one"), lambda: {"1": waited, **dict.fromkeys(others, now / 100)}, lambda: now
    )
    told = []
    for share in shares:
        assert crowding.look() == ""  # the window is not over yet
        now, waited = now + WINDOW_S, waited + share * WINDOW_S
        told.append(crowding.look())
    return told


def test_it_is_told_once_and_not_for_a_moment() -> None:
    *before, told, after, last = looks([0.1, 0.5, 0.2, 0.3, 0.35, 0.5, 0.5])
    assert [*before, after, last] == [""] * 6
    assert "35 % of the time a compute thread waited for one" in told
    assert "phalanx train --resume runs/one machine.threads=1" in told


def test_threads_that_decode_do_not_count() -> None:
    if not core_waits():
        pytest.skip("the kernel does not count")
    with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
        decoder = str(pool.submit(threading.get_native_id).result())
        assert decoder in core_waits()
        counted = compute_waits()
    assert decoder not in counted
    assert str(threading.get_native_id()) in counted


def test_one_thread_has_nobody_to_wait_for() -> None:
    assert looks([0.9] * 4, threads=1) == [""] * 4
