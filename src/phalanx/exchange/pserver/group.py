"""The workers of a job with parameter servers: the first server adds up their numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from phalanx.data.order import Share
from phalanx.exchange.pserver.reduce import LAST, Numbers, Topic
from phalanx.exchange.pserver.servers import Servers

_GATHERED_AT_ONCE = 1 << 20  # numbers in a message


@dataclass
class StepNumber:
    """The step that a worker computes; None before its first update."""

    number: int | None = None

    @property
    def known(self) -> bool:
        return self.number is not None

    @property
    def on_wire(self) -> int:
        """As a message says it: -1 where it is not known."""
        return -1 if self.number is None else self.number

    def advance(self) -> None:
        self.number = None if self.number is None else self.number + 1


class PserverGroup:
    """Workers in sync mode, which take each step together."""

    lockstep = True

    def __init__(self, share: Share, servers: Servers, step: StepNumber) -> None:
        self.share, self._servers, self._step = share, servers, step

    def reduce(self, topic: Topic, numbers: Numbers) -> tuple[Numbers, int]:
        """The sum over all live workers, and their number."""
        return self._servers.reduce(topic, self._step.on_wire, numbers)

    def sum(self, counts: list[float]) -> list[float]:
        total, _ = self.reduce(Topic.COUNTS, np.array(counts, dtype=np.float64))
        return [float(each) for each in total]

    def mean(self, values: Tensor) -> Tensor:
        total, workers = self.reduce(Topic.STATISTICS, values.double().cpu().numpy())
        return torch.from_numpy(total / workers)

    def sync_step(self, stop: bool, counts: list[float]) -> tuple[bool, list[float]]:
        if self.share.world == 1:
            return stop, counts
        (stops, *totals), _ = self.reduce(Topic.STEP, np.array([float(stop), *counts]))
        return stops > 0, [float(each) for each in totals]

    def gather(self, values: Tensor) -> list[Tensor]:
        """Those of one worker after another, each as sums to which the others add zeros. A lost worker's are zeros."""
        mine = values.double().cpu().numpy().ravel()
        rows = []
        for rank in range(self.share.world):
            row = mine if rank == self.share.rank else np.zeros_like(mine)
            starts = range(0, len(row), _GATHERED_AT_ONCE)
            parts = [self.reduce(Topic.GATHERED, row[low : low + _GATHERED_AT_ONCE])[0] for low in starts]
            rows.append(torch.from_numpy(np.concatenate(parts)).to(values.dtype).view(values.shape))
        return rows if self.share.rank == 0 else []


class AsyncPserverGroup(PserverGroup):
    """Workers in async and ssp mode: no worker waits for the others' steps, and each may stop after another one."""

    lockstep = False
    _left = False

    def reduce(self, topic: Topic, numbers: Numbers) -> tuple[Numbers, int]:
        return self._servers.reduce(topic, LAST if self._left else self._step.on_wire, numbers)

    def sync_step(self, stop: bool, counts: list[float]) -> tuple[bool, list[float]]:
        return stop, counts

    def leave(self) -> None:
        """Tell the servers that no other worker has to wait for a step of this one."""
        self._servers.leave()
        self._left = True
