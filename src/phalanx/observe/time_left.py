"""How long work still takes, and durations as people write them."""

from dataclasses import dataclass

_RECENT = 0.05  # weight of the newest step


def duration(seconds: float) -> str:
    """Such as 1:05:00, or 5:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class Pace:
    """How long the latest steps took, and what came between them: validation, checkpoints."""

    steps: int = 0
    step_s: float = 0.0  # mean of the latest
    pauses_s: float = 0.0  # all of them
    _last: tuple[int, float] | None = None
    _paused: bool = False

    def add(self, step: int, now: float) -> None:
        """A step ended."""
        if self._last is not None and step > self._last[0]:
            count = step - self._last[0]
            taken = now - self._last[1]
            if self._paused and self.steps:
                self.pauses_s += max(0.0, taken - count * self.step_s)
            else:
                weight = max(_RECENT, count / (self.steps + count))
                self.step_s += weight * (taken / count - self.step_s)
            self.steps += count
        self._last, self._paused = (step, now), False

    def pause(self) -> None:
        """Something else happens before the next step."""
        self._paused = True

    def left_s(self, steps: int, *, pauses: bool = False) -> float | None:
        """Seconds for so many steps; with `pauses`, and as much between them as so far."""
        if not self.steps:
            return None
        return max(0, steps) * (self.step_s + (self.pauses_s / self.steps if pauses else 0.0))
