"""From an arrangement to a prediction: speed, memory, hours and cost, each with a range."""

from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.plan.job import Job
from phalanx.plan.memory import Parts, server_memory, worker_memory
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.simulate import PARTS, Simulated, simulate

HOUR = 3600.0
# What is uncertain turns out well or badly: of links, servers and spread, and of compute. A step is shortest where both
# are good; a speed-up is best where links are good and computing is slow enough to hide them.
OUTLOOKS = ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0))


@dataclass(frozen=True)
class Range:
    """What is expected, and the lowest and highest that uncertain inputs allow."""

    expected: float
    low: float
    high: float

    @classmethod
    def of(cls, expected: float, others: Iterable[float]) -> "Range":
        found = [expected, *others]
        return cls(expected, min(found), max(found))

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
    parts: dict[str, Range]  # of a step, in seconds
    efficiency: Range  # speed over that of as many workers that exchange nothing and never wait
    alone_s: float  # seconds of a step of one worker with as many images, without exchange
    worker_memory: Parts
    server_memory: Parts
    total_steps: int | None
    hosts: int  # to be rented, those of servers and data servers included
    price: float | None  # of a host for an hour

    @property
    def images_per_s(self) -> Range:
        return self.step_s.inverse(self.job.images)

    @property
    def speed_up(self) -> Range:
        """Against one worker."""
        return self.efficiency * self.arranged.workers

    @property
    def hours(self) -> Range | None:
        return None if self.total_steps is None else self.step_s * (self.total_steps / HOUR)

    @property
    def cost(self) -> Range | None:
        hours = self.hours
        return None if hours is None or self.price is None else hours * (self.price * self.hosts)


def predict(setup: Setup, arranged: Arrangement, *, ranges: bool = True) -> Prediction:
    """Simulate an arrangement. Without `ranges` only what is expected, five times as fast."""
    job = setup.job(arranged)
    simulated, alone_s = simulate(job), simulate(alone(job)).step_s
    jobs = [setup.job(arranged, *outlook) for outlook in OUTLOOKS] if ranges else []
    others = [simulate(other) for other in jobs]
    efficiencies = (simulate(alone(one)).step_s / found.step_s for one, found in zip(jobs, others, strict=True))
    return Prediction(
        arranged,
        job,
        simulated,
        Range.of(simulated.step_s, (found.step_s for found in others)),
        {part: Range.of(simulated.parts[part], (found.parts[part] for found in others)) for part in PARTS},
        Range.of(alone_s / simulated.step_s, efficiencies),
        alone_s,
        worker_memory(setup, arranged),
        server_memory(setup, arranged),
        total_steps(setup, job.images),
        job.all_hosts + setup.cluster.data_servers,
        setup.cluster.price,
    )


def alone(job: Job) -> Job:
    """One worker of it, which exchanges nothing."""
    return job.but(workers=1, per_host=1, method="local", server_hosts=0, spread=0.0)


def total_steps(setup: Setup, images: int) -> int | None:
    """Steps to the end of the recipe; None where the size of the data is not known."""
    length, samples = setup.config.train.length, setup.data.samples
    if length.unit == "ep" and samples is None:
        return None
    per_epoch = max(1, -(-(samples or 1) // images))
    return max(1, length.steps(steps_per_epoch=per_epoch, samples_per_step=images))
