"""Small sums over workers, in rank order, at the first server: counts, requests to stop, statistics, scores."""

from collections.abc import Collection, Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


class Topic(IntEnum):
    """What a sum is about: sums of different topics may be open at the same time."""

    COUNTS = 1
    STEP = 2
    STATISTICS = 3
    RESIDUALS = 4
    BARRIER = 5
    GATHERED = 6


Round = tuple[int, int]  # a topic, and the step after which workers sum
LAST = 2**62  # instead of a step: workers that leave sum once more, whatever step each has reached


class Reduces:
    """Sums that wait for workers. A sum is complete when all workers that take part have added to it.

    Those are the live workers, without those that joined the job after the sum's step, and, unless it is the last sum,
    without those that are leaving.
    """

    def __init__(self) -> None:
        self._open: dict[Round, dict[int, Numbers]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, topic: int, step: int, rank: int, numbers: Numbers) -> None:
        self._open.setdefault((topic, step), {})[rank] = numbers

    def forget(self, rank: int) -> None:
        """Drop the numbers of a worker that has left the job."""
        for parts in self._open.values():
            parts.pop(rank, None)

    def complete(self, joined: Mapping[int, int], leaving: Collection[int]) -> list[tuple[list[int], Numbers]]:
        """Sums that are complete: (ranks that get it, the sum followed by the number of workers in it).

        `joined` holds the live workers, each with the step at which it joined: -1 for those that began the job.
        """
        found = []
        for (topic, step), parts in list(self._open.items()):
            taking_part = {rank for rank, since in joined.items() if since < 0 or since < step}
            if step != LAST:
                taking_part -= set(leaving)
            if not parts:
                del self._open[topic, step]
            elif parts.keys() >= taking_part:
                ranks = sorted(parts)
                total = parts[ranks[0]].copy()
                for rank in ranks[1:]:
                    total += parts[rank]
                found.append((ranks, np.append(total, float(len(ranks)))))
                del self._open[topic, step]
        return found
