"""Simulate steps of a job: who computes, sends and waits when."""

import random
from dataclasses import dataclass, field

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
        self._job, self._random = job, random.Random(seed)
        on_host = min(job.per_host, job.workers)
        images = job.batch * job.accumulate
        rate = job.input_images_per_s
        self._batch_s = 0.0 if rate is None else images * on_host / rate
        self._made = [0.0] * job.workers  # when each worker's next batch is complete
        self._taken: list[list[float]] = [[] for _ in range(job.workers)]

    def factor(self) -> float:
        """This step's compute time of a worker, over the mean. Never far below: nothing computes faster than alone."""
        spread = self._job.spread
        return max(1 - 2 * spread, self._random.gauss(1.0, spread)) if spread else 1.0

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
