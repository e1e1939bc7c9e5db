"""The event loop in C is the one in Python; the short form of collective steps is that of every worker by itself."""

import itertools
from typing import Any

import pytest

from phalanx.native.build import SWITCH, find_library
from phalanx.plan.all_reduce import bucket_ready, bucket_seconds, sync_s
from phalanx.plan.job import PREFETCH, Job
from phalanx.plan.native_queues import native_moments
from phalanx.plan.pace import Pace, make_pace
from phalanx.plan.server_queues import ServerQueues
from phalanx.plan.server_work import server_work
from phalanx.plan.simulate import settled, simulate
from tests.plan.jobs import MB, REAL, job, network

STEPS = 7


def queues(one: Job) -> ServerQueues:
    return ServerQueues(one, server_work(one), make_pace(one, STEPS, 0), STEPS)


@pytest.mark.parametrize("mode", ["sync", "async", "ssp:1", "ssp:3"])
def test_c_and_python_give_the_same_bits(mode: str) -> None:
    library = find_library("server_queues", "Python")
    if library.handle is None:
        pytest.skip(library.reason)
    for workers, per_host, servers, apart, nic, rate, spread in itertools.product(
        (1, 3, 9), (1, 4), (1, 3), (0, 1), (1e8, 2e9), (None, 500.0), (0.0, 0.1)
    ):
        shape: dict[str, Any] = {"workers": workers, "per_host": min(per_host, workers), "servers": servers}
        shape |= {"method": "pserver", "mode": mode, "server_hosts": apart, "server": REAL, "copy_s": 1e-10}
        shape |= {"network": network(nic, latency_s=3e-5), "input_images_per_s": rate, "spread": spread}
        one = job(3 * MB, 5000, MB, **shape)
        assert native_moments(queues(one)) == queues(one).run(), one


def test_without_a_compiler_python_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(MB, *([50_000] * 30), workers=40, method="pserver", servers=3, server=REAL, spread=0.1)
    fast = simulate(one, STEPS)
    find_library.cache_clear()
    monkeypatch.setenv(SWITCH, "0")
    assert native_moments(queues(one)) is None
    assert simulate(one, STEPS) == fast
    find_library.cache_clear()


def worker_by_worker(one: Job, pace: Pace) -> float:
    """Seconds of a collective step: each worker has its own clock, factor and batches."""
    free, marks = [0.0] * one.workers, []
    made, begun = [0.0] * one.workers, [[0.0] * one.workers for _ in range(STEPS)]
    for step in range(STEPS):
        factors = pace.factors[step * one.workers : (step + 1) * one.workers]
        for worker in range(one.workers):
            room = begun[step - PREFETCH][worker] if step >= PREFETCH else 0.0
            made[worker] = max(made[worker], room) + pace.batch_s
            begun[step][worker] = max(free[worker], made[worker])
        starts = list(zip(begun[step], factors, strict=True))
        channel = 0.0
        for (seconds, encoded), wire_s in zip(bucket_ready(one), bucket_seconds(one), strict=True):
            last = max(begin + factor * (one.before_backward_s + seconds) + encoded for begin, factor in starts)
            channel = max(channel, last) + wire_s
        done = max(begin + factor * one.accumulate * one.times.compute_s for begin, factor in starts)
        free = [max(channel, done) + sync_s(one) + one.times.update_s] * one.workers
        marks.append(free[0])
    return settled(marks)


@pytest.mark.parametrize("rate", [None, 100.0, 2000.0])
@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("workers", [2, 5, 16])
def test_collective_steps_are_those_of_every_worker(workers: int, spread: float, rate: float | None) -> None:
    shape: dict[str, Any] = {"workers": workers, "per_host": min(4, workers), "method": "collective", "accumulate": 2}
    shape |= {"network": network(1e9, latency_s=3e-5), "input_images_per_s": rate, "spread": spread}
    one = job(3 * MB, 9 * MB, MB, update_s=0.01, **shape)
    assert simulate(one, STEPS).step_s == pytest.approx(worker_by_worker(one, make_pace(one, STEPS, 1)), rel=1e-9)
