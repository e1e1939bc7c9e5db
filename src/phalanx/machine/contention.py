"""Detect contention for the cores: while other processes want them, idle OpenMP threads sleep at once.

Otherwise idle threads spin for a moment first. Spinning makes small operations 1.2 times as fast in a process that has
its cores to itself, and half as fast in one that shares them. libgomp reads the spin time when it is loaded, but spins
only while it manages no more threads than there are cores. So one extra OpenMP thread, which does nothing, makes all
of them sleep; when it ends, they spin again.
"""

import ctypes
import math
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch

from phalanx.machine.openmp import spins_while_alone

CHECK_EVERY_S = 0.5
CONTENDED = 0.05  # share of the time that a compute thread had to wait for a core
COOL_DOWN_S = 5.0  # without contention, before threads spin again

_TASKS = Path("/proc/self/task")
_watch: list["_ContentionWatch"] = []  # at most one


def watch_contention() -> None:
    """Start the watch in a background thread, if this process lets threads spin. Call it after set_num_threads."""
    if spins_while_alone() and torch.get_num_threads() > 1 and not _watch:
        _watch.append(_ContentionWatch(torch.get_num_threads()))
        _watch[0].start()


class _ContentionWatch(threading.Thread):
    def __init__(self, threads: int) -> None:
        super().__init__(name="contention-watch", daemon=True)
        self._threads = threads
        self.extra = ExtraThread()

    def run(self) -> None:
        before, when = core_waits(), time.monotonic()
        if not before:
            self.extra.start()
            return
        last_seen = -math.inf
        while True:
            time.sleep(CHECK_EVERY_S)
            after, now = core_waits(), time.monotonic()
            share = sum(max(0.0, seconds - before.get(task, 0.0)) for task, seconds in after.items()) / (now - when)
            before, when = after, now
            if share > CONTENDED * self._threads:
                last_seen = now
                self.extra.start()
            elif now - last_seen > COOL_DOWN_S:
                self.extra.stop()


def core_waits() -> dict[str, float]:
    """Seconds that each thread of this process was runnable without a core. Empty where the kernel does not count."""
    found = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, IndexError, ValueError):  # the thread has ended, or the kernel does not count
                ran, waits = (task / "schedstat").read_bytes().split()[:2]
                if int(ran):
                    found[task.name] = int(waits) / 1e9
    return found


class ExtraThread:
    """One more OpenMP thread than there are cores: while it runs, idle threads sleep."""

    def __init__(self) -> None:
        self._end: threading.Event | None = None

    @property
    def running(self) -> bool:
        return self._end is not None

    def start(self) -> None:
        """Start it, unless it runs already."""
        if self._end is None:
            end = threading.Event()
            with suppress(RuntimeError):  # no more threads can be started now; the next check tries again
                threading.Thread(target=_hold_team, args=(end,), name="extra-openmp-thread", daemon=True).start()
                self._end = end

    def stop(self) -> None:
        """End it, if it runs."""
        if self._end is not None:
            self._end.set()
            self._end = None


def _hold_team(end: threading.Event) -> None:
    """Make OpenMP create a team of two for this thread; the second thread lives until this one ends."""
    torch.get_num_threads()  # the first call sets this thread's number to the default: it must come before ours
    with suppress(AttributeError):  # without access to OpenMP the team has the default size, which is enough
        ctypes.CDLL(None).omp_set_num_threads(2)
    torch.zeros(1 << 18).add_(1)
    end.wait()
