"""Notices that threads of a run wait for a core instead of computing, and tells the user what to do about it."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from phalanx.machine.contention import core_waits

WINDOW_S = 10.0
CROWDED = 0.25  # share of a window that the compute thread with the longest waits had no core


def compute_waits() -> dict[str, float]:
    """Seconds that the calling thread and OpenMP's waited for a core: Python's other threads read, decode or talk."""
    others = {str(thread.native_id) for thread in threading.enumerate() if thread is not threading.current_thread()}
    return {task: seconds for task, seconds in core_waits().items() if task not in others}


class Crowding:
    """Sees how long each compute thread waited for a core, window by window."""

    def __init__(
        self,
        threads: int,
        run: Path,
        waits: Callable[[], Mapping[str, float]] = compute_waits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threads, self._run, self._waits, self._clock = threads, run, waits, clock
        self._before, self._since = dict(waits()), clock()
        self._in_a_row, self._told = 0, False

    def look(self) -> str:
        """Call it after each step. The text for the user, once: when two windows in a row were crowded."""
        now = self._clock()
        if self._told or self._threads == 1 or now - self._since < WINDOW_S:
            return ""
        after = dict(self._waits())
        waited = max((seconds - self._before.get(task, 0.0) for task, seconds in after.items()), default=0.0)
        share = waited / (now - self._since)
        self._before, self._since = after, now
        self._in_a_row = self._in_a_row + 1 if share > CROWDED else 0
        self._told = self._in_a_row == 2
        return self._text(share) if self._told else ""

    def _text(self, share: float) -> str:
        return (
            f"other processes, or this run's own decoding, want the cores: {100 * share:.0f} % of the time a compute "
            f"thread waited for one. The run keeps its {self._threads} threads, since sums over others round "
            "differently. On cores that stay busy, one thread may be faster (`phalanx bench threads` measures "
            f"it): stop, and phalanx train --resume {self._run} machine.threads=1"
        )
