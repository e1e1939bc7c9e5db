"""Find the fastest arrangement of a number of workers: one that none of its neighbours beats.

Only what leaves the result of a run as it is may be chosen: the method, and the number of servers. Asynchronous modes
and compression are the user's.
"""

from collections.abc import Iterator
from dataclasses import replace

from phalanx.plan.server_work import bound_s
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.simulate import simulate

EQUAL = 0.002  # of a step: not worth a change


def neighbours(arranged: Arrangement, most_servers: int) -> Iterator[Arrangement]:
    """Arrangements that differ in one choice. One worker has nothing to exchange, and no servers to gain from."""
    if arranged.workers == 1:
        return
    if arranged.mode == "sync":
        if arranged.method == "collective":
            if not arranged.compress.startswith("powersgd"):
                yield from (replace(arranged, method="pserver", servers=count) for count in _counts(most_servers))
        else:
            yield replace(arranged, method="collective", servers=1)
    if arranged.method == "pserver":
        now = arranged.servers
        for count in sorted({now - 1, now + 1, now // 2, 2 * now} - {now}):
            if 1 <= count <= most_servers:
                yield replace(arranged, servers=count)


def _counts(most: int) -> list[int]:
    return [count for power in range(11) if (count := 2**power) <= most]


def most_servers(setup: Setup, workers: int) -> int:
    """More servers than hosts and workers are of no use: each has a process, and shares its host's link."""
    return max(1, min(workers, 2 * (-(-workers // setup.cluster.per_host) + setup.cluster.server_hosts), 64))


class Search:
    """Remembers what was simulated. What cannot win by its bound alone is not simulated."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._known: dict[Arrangement, float] = {}

    def seconds(self, arranged: Arrangement, against: float = float("inf")) -> float:
        """Seconds of a step, or a lower bound that is above `against`."""
        if arranged not in self._known:
            job = self._setup.job(arranged)
            if job.method == "pserver" and (bound := bound_s(job)) > against:
                return bound
            self._known[arranged] = simulate(job).step_s
        return self._known[arranged]

    def best(self, start: Arrangement) -> Arrangement:
        """From a start to one that none of its neighbours beats."""
        best, seconds = start, self.seconds(start)
        limit = most_servers(self._setup, start.workers)
        improved = True
        while improved:
            improved = False
            for other in neighbours(best, limit):
                found = self.seconds(other, seconds)
                if found < (1 - EQUAL) * seconds:
                    best, seconds, improved = other, found, True
        return best
