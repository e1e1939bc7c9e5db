"""Memory and descriptors of the launcher and the servers over time, and whether they grow."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SAMPLE_S = 2.0
SETTLE = 0.25  # share of a process's samples that belongs to its start
ENOUGH = 10  # samples, for a slope to mean something
# A leak that matters shows as more than this over the whole time; noise of an allocator does not.
MOST_MB, MOST_DESCRIPTORS = 48.0, 12.0


@dataclass(frozen=True)
class Slope:
    """Of one process: least squares over its samples after the start, as growth over the time that it was watched."""

    name: str
    minutes: float
    megabytes: float
    descriptors: float
    last_mb: float

    @property
    def grows(self) -> bool:
        return self.megabytes > MOST_MB or self.descriptors > MOST_DESCRIPTORS

    def __str__(self) -> str:
        per_hour = 60 / self.minutes
        return (
            f"{self.name}, {self.minutes:.1f} min: {self.last_mb:.0f} MB at the end; slope "
            f"{self.megabytes * per_hour:+.1f} MB/h, {self.descriptors * per_hour:+.1f} descriptors/h"
        )


Sample = tuple[float, float, float]  # when, megabytes, descriptors


class Growth:
    """Samples in a thread, from its construction to `stop`. `pids` names the processes that are there."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids
        self._samples: dict[tuple[str, int], list[Sample]] = defaultdict(list)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)
        self._thread.start()

    def _sample_all(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            for name, pid in self._pids().items():
                self._sample(name, pid)

    def _sample(self, name: str, pid: int) -> None:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:  # it has ended
            return
        self._samples[name, pid].append((time.monotonic(), pages * 4096 / 1e6, descriptors))

    def stop(self) -> list[Slope]:
        """The launcher, and of each server the process that lived longest."""
        self._ended.set()
        self._thread.join()
        return [_slope(name, samples) for name, samples in self._longest().items() if len(samples) >= ENOUGH]

    def by_minute(self) -> dict[str, list[tuple[float, float, float]]]:
        """Of the same processes, the least of each minute: minutes since the first sample, megabytes, descriptors."""
        found = {}
        for name, samples in self._longest().items():
            minutes = defaultdict(list)
            for when, megabytes, descriptors in samples:
                minutes[int((when - samples[0][0]) / 60)].append((megabytes, descriptors))
            found[name] = [(minute, *map(min, zip(*values, strict=True))) for minute, values in minutes.items()]
        return found

    def _longest(self) -> dict[str, list[Sample]]:
        longest: dict[str, list[Sample]] = {}
        for (name, _), samples in self._samples.items():
            if len(samples) > len(longest.get(name, [])):
                longest[name] = samples
        return longest


def _slope(name: str, samples: Sequence[Sample]) -> Slope:
    settled = np.array(samples[int(len(samples) * SETTLE) :])
    seconds = settled[:, 0] - settled[0, 0]
    span = float(seconds[-1])
    megabytes, descriptors = (float(np.polyfit(seconds, settled[:, column], 1)[0]) * span for column in (1, 2))
    return Slope(name, span / 60, megabytes, descriptors, float(settled[-1, 1]))
