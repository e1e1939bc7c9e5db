"""What a parameter server did: one line of its log for each applied step, not for each slice."""

from collections import Counter
from pathlib import Path
from typing import Any

from phalanx.exchange.pserver.policy import Push
from phalanx.runs.server_log import ServerLog


class _Step:
    """One step's sums over the slices of this server."""

    def __init__(self) -> None:
        self.slices = self.gradients = self.stale_sum = self.stale_max = 0
        self.rate = 0.0


class Journal:
    """Counts what is refused and how stale gradients are; writes a line when a step is applied on all slices."""

    def __init__(self, path: Path | None) -> None:
        self.refused: Counter[str] = Counter()
        self.duplicates = 0
        self.staleness: Counter[int] = Counter()
        self._steps: dict[tuple[int, int], _Step] = {}
        self._log = ServerLog(path)

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        self._log.write(kind, fields)

    def applied(self, pushes: list[Push], num_slices: int, together: bool) -> None:
        """Note an update of one slice; `together` where a step is one update of all workers' gradients."""
        worker = -1 if together else pushes[0].rank
        number = max(push.step for push in pushes)
        step = self._steps.setdefault((worker, number), _Step())
        step.slices += 1
        real = [push for push in pushes if not push.empty and not push.void]
        step.gradients = max(step.gradients, len(real))
        for push in real:
            self.staleness[push.staleness] += 1
            step.rate = push.rate
            step.stale_sum += push.staleness
            step.stale_max = max(step.stale_max, push.staleness)
        if step.slices == num_slices:
            del self._steps[worker, number]
            mean = step.stale_sum / max(1, step.gradients * num_slices)
            fields: dict[str, Any] = {"step": number, "rate": step.rate, "gradients": step.gradients}
            if not together:
                fields |= {"worker": worker, "staleness": round(mean, 3), "staleness_max": step.stale_max}
            self.write("update", fields)

    def totals(self) -> dict[str, Any]:
        """The last line of the log."""
        count = max(1, self.staleness.total())
        return {
            "refused": dict(self.refused),
            "duplicates": self.duplicates,
            "staleness_mean": sum(size * times for size, times in self.staleness.items()) / count,
            "staleness_max": max(self.staleness, default=0),
            "staleness_histogram": {str(size): self.staleness[size] for size in sorted(self.staleness)},
        }

    def close(self) -> None:
        self.write("end", self.totals())
        self._log.close()
