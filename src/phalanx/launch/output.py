"""Output of roles: all of it in ROLE.log, lines for the screen, and the training progress in it."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TextIO

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.events import EVENTS_FILE, TIMES

# A step event as observe/lines.py writes it, with the numbers of one of several workers.
_STEP = re.compile(
    r"\bstep (\d+): loss .*? ([\d.]+) samples/s"
    rf"(?:; this worker ([\d.]+): {', '.join(rf'{name} ([0-9.]+)' for name in TIMES)} ms)?"
)


_LONGEST_LINE = 1 << 16  # characters of a line that is kept back until its end


class Progress(NamedTuple):
    """A trainer's step, its own samples per second, and if known the parts of its step time in seconds."""

    step: int
    samples_per_s: float
    times: dict[str, float] | None = None


def progress_in(line: str) -> Progress | None:
    """A trainer's progress, if the line has it."""
    found = _STEP.search(line)
    if found is None:
        return None
    step, speed, own, *times = found.groups()
    if own is None:
        return Progress(int(step), float(speed))
    return Progress(int(step), float(own), {name: float(ms) / 1000 for name, ms in zip(TIMES, times, strict=True)})


def last_progress(run: Path) -> Progress | None:
    """The progress of a run's first trainer, from its events."""
    for line in reversed(last_lines(run / EVENTS_FILE, 50)):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            event = read_json(line)
            if event["kind"] == "step":
                mine = event["ranks"][0] if event["ranks"] else event
                times = {name: float(mine[f"{name}_s"]) for name in TIMES}
                return Progress(int(event["step"]), float(mine["samples_per_s"]), times)
    return None


class RoleOutput:
    """One role's output. `on_line` gets the stream and the text of each complete line.

    A line that never ends, such as a progress bar that is drawn over and over, is passed on in parts.
    """

    def __init__(self, path: Path, on_line: Callable[[str, str], None]) -> None:
        self.path = path
        self._on_line = on_line
        self._partial: dict[str, str] = {}
        self._file: TextIO | None = None

    def write(self, stream: str, text: str) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8", errors="surrogateescape", newline="")
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be written",
                why=error.strerror or str(error),
                remedy="free disk space or fix the permissions, then continue with --resume",
            ) from error
        *lines, rest = (self._partial.get(stream, "") + text).split("\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        self._partial[stream] = rest
        for line in lines:
            self._on_line(stream, line.rstrip("\r"))

    def close(self) -> None:
        """Pass on a last line without a line break, and close the log."""
        for stream, rest in self._partial.items():
            if rest:
                self._on_line(stream, rest)
        self._partial = {}
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be written has already raised its error
                self._file.close()
            self._file = None


def last_lines(path: Path, count: int = 8) -> list[str]:
    """The last lines of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
