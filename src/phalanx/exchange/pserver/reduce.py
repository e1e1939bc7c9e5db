"""Small sums over workers, in rank order, at the first server: counts, wishes to stop, batch-norm statistics."""

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


Round = tuple[int, int]  # a topic, and the step after which workers meet for it
LAST = 2**62  # instead of a step: workers that leave meet once more, wherever each of them stands


class Reduces:
    """Sums that wait for workers. One is complete when everybody whom it concerns has added to it.

    It concerns the live workers, less those that came into the job after its step, and less those that are leaving it
    unless it is the last: they will not come to it.
    """

    def __init__(self) -> None:
        self._open: dict[Round, dict[int, Numbers]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, topic: int, step: int, rank: int, numbers: Numbers) -> None:
        self._open.setdefault((topic, step), {})[rank] = numbers

    def forget(self, rank: int) -> None:
        """A worker that has gone takes its numbers along: nobody waits for the sum that it asked for."""
        for parts in self._open.values():
            parts.pop(rank, None)

    def complete(self, joined: Mapping[int, int], leaving: Collection[int]) -> list[tuple[list[int], Numbers]]:
        """Sums that are complete: (ranks to tell, the sum followed by the number of workers in it).

        `joined` holds the live workers, each with the step at which it came: -1 for those who began the job.
        """
        found = []
        for (topic, step), parts in list(self._open.items()):
            concerned = {rank for rank, since in joined.items() if since < 0 or since < step}
            if step != LAST:
                concerned -= set(leaving)
            if not parts:
                del self._open[topic, step]
            elif parts.keys() >= concerned:
                ranks = sorted(parts)
                total = parts[ranks[0]].copy()
                for rank in ranks[1:]:
                    total += parts[rank]
                found.append((ranks, np.append(total, float(len(ranks)))))
                del self._open[topic, step]
        return found
