"""Where the time of steps goes: data, computing, exchange, update."""

from dataclasses import dataclass

from phalanx.engine.step import Measurements
from phalanx.exchange.base import WorkerGroup
from phalanx.runs.events import TIMES


@dataclass
class Times:
    """Seconds spent since the last step event."""

    steps: int = 0
    samples: int = 0
    data_s: float = 0.0
    compute_s: float = 0.0
    exchange_s: float = 0.0
    update_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0

    def add(self, measurements: Measurements) -> None:
        self.steps += 1
        self.samples += measurements.samples
        self.data_s += measurements.data_s
        self.compute_s += measurements.compute_s
        self.exchange_s += measurements.exchange_s
        self.update_s += measurements.update_s
        self.bytes_sent += measurements.bytes_sent
        self.bytes_received += measurements.bytes_received

    @property
    def seconds(self) -> float:
        """Never 0, so that it can be divided by."""
        return max(1e-9, self.data_s + self.compute_s + self.exchange_s + self.update_s)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def of_a_step(self) -> tuple[float, ...]:
        """Seconds of a step by kind, in the order of TIMES."""
        return tuple(s / self.steps for s in (self.data_s, self.compute_s, self.exchange_s, self.update_s))


def each_rank(times: Times, group: WorkerGroup) -> list[dict[str, float]]:
    """Times per step of each worker; empty for one worker, and without lockstep."""
    share = group.share
    if share.world == 1 or not group.lockstep:
        return []
    names = [*(f"{name}_s" for name in TIMES), "samples_per_s"]
    mine = [*times.of_a_step, times.samples_per_s]
    blank = [0.0] * len(mine)
    table = group.sum([x for rank in range(share.world) for x in (mine if rank == share.rank else blank)])
    rows = [table[n * len(mine) : (n + 1) * len(mine)] for n in range(share.world)]
    return [dict(zip(names, row, strict=True)) for row in rows]
