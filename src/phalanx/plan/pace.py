"""How fast workers are: when their batches are there, and how their compute times vary."""

import random
from dataclasses import dataclass
from statistics import NormalDist

from phalanx.plan.job import Job


@dataclass(frozen=True)
class Pace:
    """The same numbers for every job of the same seed."""

    factors: list[float]  # compute times over their mean, by step, then worker
    batch_s: float  # until a worker's next batch is made; 0: never waited for


def make_pace(job: Job, steps: int, seed: int) -> Pace:
    """Each step has the order statistics, in another order."""
    draws, shares = random.Random(seed), order_statistics(job.workers, job.spread)
    factors = [share for _ in range(steps) for share in draws.sample(shares, len(shares))]
    return Pace(factors, batch_seconds(job))


def batch_seconds(job: Job) -> float:
    """A host makes the batches of its workers at its rate."""
    rate, on_host = job.input_images_per_s, min(job.per_host, job.workers)
    return 0.0 if rate is None else job.batch * job.accumulate * on_host / rate


def order_statistics(count: int, spread: float) -> list[float]:
    """What so many normal draws are expected to be, from the least to the largest.

    So the slowest worker is as slow as it is on average already in a few steps, and jobs that are compared do not
    differ by luck.
    """
    normal = NormalDist()
    return [max(0.1, 1 + spread * normal.inv_cdf((place + 0.625) / (count + 0.25))) for place in range(count)]
