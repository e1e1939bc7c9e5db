"""Simulate steps of a job: who computes, sends and waits when."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.plan.job import Job

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


def simulate(job: Job, steps: int | None = None, seed: int = 0) -> Simulated:
    """Some steps of a job, the first not counted. By default as many as a fraction of a second allows."""
    if job.method == "pserver":
        from phalanx.plan.simulate_pserver import simulate_pserver

        return simulate_pserver(job, steps, seed)
    from phalanx.plan.simulate_collective import simulate_collective

    return simulate_collective(job, steps)


def settled(marks: Sequence[float]) -> float:
    """Seconds of a step, from the ends of steps: later ones, since the first fill queues."""
    skip = max(1, len(marks) // 4)
    return (marks[-1] - marks[skip - 1]) / (len(marks) - skip)


def balanced(job: Job, step_s: float, parts: dict[str, float]) -> dict[str, float]:
    """All parts, so that they add up to the step: what none of them has is waiting for data, where data is limited.

    They are means over all steps, and the step's time that of the later ones, so they may differ a little.
    """
    known = sum(parts.values())
    if known > 0 and (job.input_images_per_s is None or known > step_s):
        return {"input": 0.0} | {name: seconds * step_s / known for name, seconds in parts.items()}
    return {"input": max(0.0, step_s - known)} | parts
