"""What a data server did: its rate and queue now, who was refused, and JSON lines in the run's folder."""

import json
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.runs.events import AppendedLines

_OVER_S = 5.0  # what a rate is the mean of
_TELL_S = 10.0  # between lines about what is going on


class Journal:
    """Counts what happens. `say` prints a line for the person who started the server."""

    def __init__(self, path: Path | None, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: AppendedLines | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lines = AppendedLines(path)
        self.refused: Counter[str] = Counter()
        self.dropped = 0  # batches made for trainers that did not wait for them any more
        self.samples = 0
        self.rate = self.idle = 0.0
        self._seen: deque[tuple[float, int, float]] = deque([(time.monotonic(), 0, 0.0)])
        self._tell_at = time.monotonic() + _TELL_S
        self._told = ""

    def note(self, kind: str, text: str, **fields: Any) -> None:
        """Something that happened, as a line for people and one for programs."""
        self._say(text)
        self._write(kind, fields)

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
        if now >= self._tell_at:
            self._tell_at = now + _TELL_S
            self._tell(queue, trainers)

    def close(self) -> None:
        self._say(f"{self.samples:,} samples served{self._refusals()}")
        self._write("end", {"samples": self.samples, "dropped": self.dropped, "refused": dict(self.refused)})
        if self._lines is not None:
            self._lines.close()

    def _tell(self, queue: int, trainers: int) -> None:
        text = (
            f"{self.samples:,} samples served, {self.rate:,.0f}/s to {trainers} trainer{'s' * (trainers != 1)}, "
            f"{queue} batches asked for and not begun, idle {100 * self.idle:.0f} %{self._refusals()}"
        )
        if text != self._told:
            self._told = text
            self._say(text)
            state = {"samples": self.samples, "samples_per_s": round(self.rate, 1), "queue": queue}
            self._write("rate", state | {"idle": round(self.idle, 3), "trainers": trainers})

    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return f", refused: {', '.join(f'{count} for {reason}' for reason, count in sorted(self.refused.items()))}"

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        if self._lines is not None:
            self._lines.line(json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}))
