"""What a data server did: its rate and queue now, what it refused, and the lines of its log."""

import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.runs.server_log import ServerLog

_OVER_S = 5.0  # what a rate is the mean of
_LINE_S = 10.0  # between lines about the rate


class Journal:
    """Counts what happens. `say` prints a line for the person who started the server."""

    def __init__(self, path: Path | None, say: Callable[[str], None]) -> None:
        self._say = say
        self._log = ServerLog(path)
        self.refused: Counter[str] = Counter()
        self.dropped = 0  # batches made for trainers that did not wait for them any more
        self.samples = 0
        self.rate = self.idle = 0.0
        self._seen: deque[tuple[float, int, float]] = deque([(time.monotonic(), 0, 0.0)])
        self._next_line = time.monotonic() + _LINE_S
        self._last_line = ""

    def note(self, kind: str, text: str, **fields: Any) -> None:
        """Something that happened, as a line for people and one for programs."""
        self._say(text)
        self._log.write(kind, fields)

    def look(self, samples: int, idle_s: float, queue: int, trainers: int) -> None:
        """Every second or so: the totals so far, from which rates follow."""
        now = time.monotonic()
        then, samples_then, idle_then = self._seen[0]
        elapsed = max(1e-9, now - then)
        self.samples = samples
        self.rate = (samples - samples_then) / elapsed
        self.idle = min(1.0, (idle_s - idle_then) / elapsed)
        self._seen.append((now, samples, idle_s))
        while len(self._seen) > 1 and now - self._seen[1][0] > _OVER_S:
            self._seen.popleft()
        if now >= self._next_line:
            self._next_line = now + _LINE_S
            self._rate_line(queue, trainers)

    def close(self) -> None:
        self._say(f"{self.samples:,} samples served{self._refusals()}")
        self._log.write("end", {"samples": self.samples, "dropped": self.dropped, "refused": dict(self.refused)})
        self._log.close()

    def _rate_line(self, queue: int, trainers: int) -> None:
        text = (
            f"{self.samples:,} samples served, {self.rate:,.0f}/s to {trainers} trainer{'s' * (trainers != 1)}, "
            f"{queue} batches requested and not begun, idle {100 * self.idle:.0f} %{self._refusals()}"
        )
        if text != self._last_line:
            self._last_line = text
            self._say(text)
            state = {"samples": self.samples, "samples_per_s": round(self.rate, 1), "queue": queue}
            self._log.write("rate", state | {"idle": round(self.idle, 3), "trainers": trainers})

    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return f", refused: {', '.join(f'{count} for {reason}' for reason, count in sorted(self.refused.items()))}"
