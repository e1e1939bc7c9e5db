"""Simulate steps of a job: who computes, sends and waits when."""

import random
from dataclasses import dataclass, field
from statistics import NormalDist

from phalanx.plan.job import PREFETCH, Job

PARTS = ("input", "compute", "exchange", "server", "update", "waiting")
MEANING = {
    "input": "waiting for data",
    "compute": "forward and backward, encoding included",
    "exchange": "exchange that backward does not hide",
    "server": "the parameter servers' own work, their update included",
    "update": "the update, on each worker",
    "waiting": "waiting for the slowest worker",
}


@dataclass
class Simulated:
    """Means over steps and workers, in seconds."""

    step_s: float
    parts: dict[str, float]
    busy: dict[str, float] = field(default_factory=dict)  # share of the time that the fullest of a kind works
    steps: int = 0

    def images_per_s(self, job: Job) -> float:
        return job.images / self.step_s


class Pace:
    """When batches are there and how long workers compute: the same numbers for every job of the same seed."""

    def __init__(self, job: Job, seed: int) -> None:
        self._random = random.Random(seed)
        self._shares = _order_statistics(job.workers, job.spread)
        self._factors: list[list[float]] = []  # by step
        self._computed = [0] * job.workers  # steps that each worker has begun
        on_host = min(job.per_host, job.workers)
        images = job.batch * job.accumulate
        rate = job.input_images_per_s
        self._batch_s = 0.0 if rate is None else images * on_host / rate
        self._made = [0.0] * job.workers  # when each worker's next batch is complete
        self._taken: list[list[float]] = [[] for _ in range(job.workers)]

    def factor(self, worker: int) -> float:
        """Its compute time in its next step, over the mean."""
        step = self._computed[worker]
        self._computed[worker] += 1
        if step == len(self._factors):
            self._factors.append(self._random.sample(self._shares, len(self._shares)))
        return self._factors[step][worker]

    def start(self, worker: int, free: float) -> float:
        """When a worker that is free gets its next batch: batches are made up to PREFETCH ahead."""
        if not self._batch_s:
            return free
        taken = self._taken[worker]
        room = taken[-PREFETCH] if len(taken) >= PREFETCH else 0.0
        self._made[worker] = max(self._made[worker], room) + self._batch_s
        begin = max(free, self._made[worker])
        taken.append(begin)
        return begin


def _order_statistics(count: int, spread: float) -> list[float]:
    """What so many normal draws are expected to be, from the least to the largest.

    Every step has these, in another order. So the slowest worker is as slow as it is on average already in a few
    steps, and jobs that are compared do not differ by luck.
    """
    normal = NormalDist()
    return [max(0.1, 1 + spread * normal.inv_cdf((place + 0.625) / (count + 0.25))) for place in range(count)]


def simulate(job: Job, steps: int | None = None, seed: int = 0) -> Simulated:
    """Some steps of a job, the first not counted. By default as many as a fraction of a second allows."""
    if job.method == "pserver":
        from phalanx.plan.simulate_pserver import simulate_pserver

        return simulate_pserver(job, steps, seed)
    from phalanx.plan.simulate_collective import simulate_collective

    return simulate_collective(job, steps, seed)


def steps_for(work: int, budget: int, least: int, most: int) -> int:
    """How many steps to simulate, if each takes so much work."""
    return max(least, min(most, budget // max(1, work)))


def settled(marks: list[float]) -> float:
    """Seconds of a step, from the ends of steps: later ones, since the first fill queues."""
    skip = max(1, len(marks) // 4)
    return (marks[-1] - marks[skip - 1]) / (len(marks) - skip)


def balanced(job: Job, step_s: float, parts: dict[str, float]) -> dict[str, float]:
    """All parts, so that they add up to the step: what none of them has is waiting for data, where data is limited."""
    known = sum(parts.values())
    if job.input_images_per_s is None and known > 0:
        return {"input": 0.0} | {name: seconds * step_s / known for name, seconds in parts.items()}
    return {"input": max(0.0, step_s - known)} | parts
