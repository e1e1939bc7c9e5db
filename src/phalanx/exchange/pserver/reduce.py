"""Small sums over workers, in rank order, at the first server: evaluation counts, batch-norm statistics, wishes."""

from collections.abc import Collection
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


class Topic(IntEnum):
    """What a sum is about: sums of different topics may be open at the same time."""

    COUNTS = 1
    WISHES = 2
    STATISTICS = 3
    RESIDUALS = 4
    BARRIER = 5


class Reduces:
    """Sums that wait for workers. One is complete when every live worker has added to it; the dead are left out."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, Numbers]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, topic: int, rank: int, numbers: Numbers) -> None:
        self._open.setdefault(topic, {})[rank] = numbers

    def forget(self, rank: int) -> None:
        """A worker that has gone takes its numbers along: nobody waits for the sum that it asked for."""
        for parts in self._open.values():
            parts.pop(rank, None)

    def complete(self, live: Collection[int]) -> list[tuple[int, list[int], Numbers]]:
        """Sums that are complete: (topic, ranks to tell, the sum followed by the number of workers in it)."""
        found = []
        for topic, parts in list(self._open.items()):
            if not parts:
                del self._open[topic]
            elif parts.keys() >= set(live):
                ranks = sorted(parts)
                total = parts[ranks[0]].copy()
                for rank in ranks[1:]:
                    total += parts[rank]
                found.append((topic, ranks, np.append(total, float(len(ranks)))))
                del self._open[topic]
        return found
