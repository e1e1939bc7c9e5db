"""From an arrangement to a prediction: speed, memory, hours and cost, each with a range."""

from dataclasses import dataclass

from phalanx.plan.job import Job
from phalanx.plan.memory import Parts, server_memory, worker_memory
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.simulate import Simulated, simulate

HOUR = 3600.0


@dataclass(frozen=True)
class Range:
    """What is expected, and the lowest and highest that uncertain inputs allow."""

    expected: float
    low: float
    high: float

    def __mul__(self, factor: float) -> "Range":
        return Range(factor * self.expected, factor * self.low, factor * self.high)

    def inverse(self, numerator: float) -> "Range":
        return Range(numerator / self.expected, numerator / self.high, numerator / self.low)


@dataclass(frozen=True)
class Prediction:
    """What one arrangement would do."""

    arranged: Arrangement
    job: Job
    simulated: Simulated
    step_s: Range
    alone_s: float  # seconds of a step of one worker with as many images, without exchange
    worker_memory: Parts
    server_memory: Parts
    total_steps: int | None
    price: float | None  # of a host for an hour

    @property
    def images_per_s(self) -> Range:
        return self.step_s.inverse(self.job.images)

    @property
    def speed_up(self) -> float:
        """Against one worker."""
        return self.efficiency * self.arranged.workers

    @property
    def efficiency(self) -> float:
        return self.alone_s / self.step_s.expected

    @property
    def hours(self) -> Range | None:
        return None if self.total_steps is None else self.step_s * (self.total_steps / HOUR)

    @property
    def cost(self) -> Range | None:
        hours = self.hours
        return None if hours is None or self.price is None else hours * (self.price * self.job.all_hosts)


def predict(setup: Setup, arranged: Arrangement, *, ranges: bool = True) -> Prediction:
    """Simulate an arrangement. Without `ranges` only what is expected, three times as fast."""
    job = setup.job(arranged)
    simulated = simulate(job)
    low = high = simulated.step_s
    if ranges:
        low = min(low, simulate(setup.job(arranged, 1.0)).step_s)
        high = max(high, simulate(setup.job(arranged, -1.0)).step_s)
    return Prediction(
        arranged,
        job,
        simulated,
        Range(simulated.step_s, low, high),
        simulate(alone(job)).step_s,
        worker_memory(setup, arranged),
        server_memory(setup, arranged),
        total_steps(setup, job.images),
        setup.cluster.price,
    )


def alone(job: Job) -> Job:
    """One worker of it, which exchanges nothing."""
    rate = job.input_images_per_s
    return job.but(workers=1, per_host=1, method="local", server_hosts=0, spread=0.0, input_images_per_s=rate)


def total_steps(setup: Setup, images: int) -> int | None:
    """Steps to the end of the recipe; None where the size of the data is not known."""
    length, samples = setup.config.train.length, setup.data.samples
    if length.unit == "ep" and samples is None:
        return None
    per_epoch = max(1, -(-(samples or 1) // images))
    return max(1, length.steps(steps_per_epoch=per_epoch, samples_per_step=images))
