"""Notices that other processes keep the threads of a run from computing, and tells the user what to do about it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from phalanx.machine.contention import core_waits

WINDOW_S = 10.0
CROWDED = 0.5  # share of a window that one thread or another waited for a core


class Crowding:
    """Adds up how long threads of this process waited for a core, window by window."""

    def __init__(
        self,
        threads: int,
        run: Path,
        waits: Callable[[], Mapping[str, float]] = core_waits,
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
        waited = sum(max(0.0, seconds - self._before.get(task, 0.0)) for task, seconds in after.items())
        share = min(1.0, waited / (now - self._since))
        self._before, self._since = after, now
        self._in_a_row = self._in_a_row + 1 if share > CROWDED else 0
        self._told = self._in_a_row == 2
        return self._text(share) if self._told else ""

    def _text(self, share: float) -> str:
        return (
            f"other processes want the cores: {100 * share:.0f} % of the time one of the {self._threads} threads of "
            "this run waited for a core, and the others for it. The run keeps its threads, since sums over others "
            "round differently. On cores that stay busy, one thread may be faster (`phalanx bench threads` measures "
            f"it): stop, and phalanx train --resume {self._run} machine.threads=1"
        )
