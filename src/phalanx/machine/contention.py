"""Whether others want the cores too: idle compute threads then sleep at once instead of spinning for a moment.

Spinning makes small operations 1.2 times as fast where a process has its cores to itself, and half as fast where it has
not. libgomp reads how long threads spin when it is loaded, but lets them do so only while it manages no more threads
than there are cores. So one more, which does nothing, has all of them sleep; when it ends, they spin again.
"""

import ctypes
import math
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch

from phalanx.machine.openmp import spin_while_alone

LOOK_EVERY_S = 0.5
CROWDED = 0.05  # of the time, that a compute thread had no core
REMEMBERED_S = 5.0  # since others were last seen

_TASKS = Path("/proc/self/task")
_watch: list["_Watch"] = []  # at most one


def look_out() -> None:
    """Begin to watch, in a thread of its own, if threads of this process spin at all. Comes after set_num_threads."""
    if spin_while_alone() and torch.get_num_threads() > 1 and not _watch:
        _watch.append(_Watch(torch.get_num_threads()))
        _watch[0].start()


class _Watch(threading.Thread):
    def __init__(self, threads: int) -> None:
        super().__init__(name="company", daemon=True)
        self._threads = threads
        self.idler = Idler()

    def run(self) -> None:
        before, when = waited(), time.monotonic()
        if not before:
            self.idler.come()
            return
        last_seen = -math.inf
        while True:
            time.sleep(LOOK_EVERY_S)
            after, now = waited(), time.monotonic()
            share = sum(max(0.0, seconds - before.get(task, 0.0)) for task, seconds in after.items()) / (now - when)
            before, when = after, now
            if share > CROWDED * self._threads:
                last_seen = now
                self.idler.come()
            elif now - last_seen > REMEMBERED_S:
                self.idler.leave()


def waited() -> dict[str, float]:
    """By thread of this process: the seconds that it could have run and had no core. Empty where nobody counts them."""
    found = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, IndexError, ValueError):  # it has ended meanwhile, or the kernel does not count
                ran, waits = (task / "schedstat").read_bytes().split()[:2]
                if int(ran):
                    found[task.name] = int(waits) / 1e9
    return found


class Idler:
    """One thread of OpenMP more than there are cores, for as long as it is wanted."""

    def __init__(self) -> None:
        self._free: threading.Event | None = None

    @property
    def here(self) -> bool:
        return self._free is not None

    def come(self) -> None:
        """Have it, if it is not there already."""
        if self._free is None:
            free = threading.Event()
            with suppress(RuntimeError):  # no more threads may be started: perhaps later
                threading.Thread(target=_lead_a_team, args=(free,), name="idler", daemon=True).start()
                self._free = free

    def leave(self) -> None:
        """Let it end."""
        if self._free is not None:
            self._free.set()
            self._free = None


def _lead_a_team(free: threading.Event) -> None:
    """Have OpenMP give this thread one of its own, which stays until this one ends."""
    torch.get_num_threads()  # a thread takes on the number of all at its first call: let it be before ours, not after
    with suppress(AttributeError):  # where OpenMP is not to be seen, the team is as large as any
        ctypes.CDLL(None).omp_set_num_threads(2)
    torch.zeros(1 << 18).add_(1)
    free.wait()
