"""The clocks of workers, compared over the job's own sums: none leaves a sum before the last has entered it."""

import time
from typing import NamedTuple

from phalanx.exchange.base import WorkerGroup

ROUNDS = 24

Rounds = list[tuple[float, float]]  # when a worker entered and left each of some sums, by its own clock


class ClockOffset(NamedTuple):
    """How far a worker's clock is ahead of the first worker's, and how far off that may be. Seconds."""

    ahead: float
    error: float


def compare_clocks(group: WorkerGroup) -> list[ClockOffset]:
    """The offset of each worker's clock, by rank. All workers call this."""
    share = group.share
    if share.world == 1:
        return [ClockOffset(0.0, 0.0)]
    rounds: Rounds = []
    for _ in range(ROUNDS):
        entered = time.perf_counter()
        group.sum([0.0])
        rounds.append((entered, time.perf_counter()))
    mine = [moment for each in rounds for moment in each]
    blank = [0.0] * len(mine)
    table = group.sum([x for rank in range(share.world) for x in (mine if rank == share.rank else blank)])
    flat = [table[rank * len(mine) : (rank + 1) * len(mine)] for rank in range(share.world)]
    each_rank = [list(zip(row[::2], row[1::2], strict=True)) for row in flat]
    return [offset_of(each_rank[0], other) for other in each_rank]


def offset_of(first: Rounds, other: Rounds) -> ClockOffset:
    """The offset that agrees with all rounds: the shortest way there and the shortest way back bound it, as in NTP."""
    if first == other:
        return ClockOffset(0.0, 0.0)
    most = min(left - entered for (entered, _), (_, left) in zip(first, other, strict=True))
    least = max(entered - left for (_, left), (entered, _) in zip(first, other, strict=True))
    return ClockOffset((most + least) / 2, max(0.0, (most - least) / 2))
