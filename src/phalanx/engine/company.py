"""Whether others want the cores too: idle compute threads then sleep at once instead of spinning for a moment.

Spinning makes small operations 1.2 times as fast where a process has its cores to itself, and half as fast where it has
not. libgomp reads how long threads spin when it is loaded, but lets them do so only while it manages no more threads
than there are cores. So some more threads, which do nothing, have all others sleep; when they end, those spin again.
"""

import math
import threading
import time
from pathlib import Path

import torch

from phalanx.openmp import spin_while_alone

LOOK_EVERY_S = 0.5
CROWDED = 0.1  # seconds that all threads of this process together waited for a core, in a second
REMEMBERED_S = 5.0  # since others were last seen

_TASKS = Path("/proc/self/task")
_watch: list["_Watch"] = []  # at most one


def look_out() -> None:
    """Begin to watch, in a thread of its own, if threads of this process spin at all. Comes after set_num_threads."""
    if spin_while_alone() and torch.get_num_threads() > 1 and not _watch:
        _watch.append(_Watch())
        _watch[0].start()


class _Watch(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="company", daemon=True)
        self.idlers = Idlers()

    def run(self) -> None:
        before, when = waited(), time.monotonic()
        if before is None:  # a kernel that does not tell
            self.idlers.come()
            return
        last_seen = -math.inf
        while True:
            time.sleep(LOOK_EVERY_S)
            after, now = waited() or {}, time.monotonic()
            share = sum(max(0.0, seconds - before.get(task, 0.0)) for task, seconds in after.items()) / (now - when)
            before, when = after, now
            if share > CROWDED:
                last_seen = now
                self.idlers.come()
            elif now - last_seen > REMEMBERED_S:
                self.idlers.leave()


def waited() -> dict[str, float] | None:
    """By thread of this process: the seconds that it could have run and had no core. None where nobody counts them."""
    found = {}
    try:
        for task in _TASKS.iterdir():
            try:
                found[task.name] = int((task / "schedstat").read_bytes().split()[1]) / 1e9
            except ProcessLookupError:  # it has ended meanwhile
                continue
    except (OSError, IndexError, ValueError):
        return None
    return found


class Idlers:
    """A second team of OpenMP's threads, for as long as it is wanted: with the first there are more than cores."""

    def __init__(self) -> None:
        self._free: threading.Event | None = None

    @property
    def here(self) -> bool:
        return self._free is not None

    def come(self) -> None:
        """Have them, if they are not there already."""
        if self._free is not None:
            return
        self._free = threading.Event()
        threading.Thread(
            target=self._idle, args=(torch.get_num_threads(), self._free), name="idler", daemon=True
        ).start()

    def leave(self) -> None:
        """Let them end."""
        if self._free is not None:
            self._free.set()
            self._free = None

    @staticmethod
    def _idle(threads: int, free: threading.Event) -> None:
        torch.zeros(threads << 16).add_(1)  # enough for all: OpenMP gives this thread a team, which stays with it
        free.wait()
