"""What roles print: whole in RUN/logs/ROLE.log, line by line on the screen, and how far they are read from it."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from phalanx.errors import UserError
from phalanx.observe.events import EVENTS_FILE

LOGS = "logs"
# A step event as observe/lines.py says it.
_STEP = re.compile(r"\bstep (\d+): loss .* ([\d.]+) samples/s")


def log_path(run: Path, role: str) -> Path:
    return run / LOGS / f"{role}.log"


Progress = tuple[int, float]  # step, samples per second


def progress_in(line: str) -> Progress | None:
    """How far a trainer is, if the line says so."""
    found = _STEP.search(line)
    return (int(found[1]), float(found[2])) if found else None


def last_progress(run: Path) -> Progress | None:
    """How far a run is, from its events."""
    for line in reversed(last_lines(run / EVENTS_FILE, 50)):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            if event["kind"] == "step":
                return int(event["step"]), float(event["samples_per_s"])
    return None


class RoleOutput:
    """One role's output. `each_line` is given every line when it is complete, with the stream it came from."""

    def __init__(self, path: Path, each_line: Callable[[str, str], None]) -> None:
        self.path = path
        self._each_line = each_line
        self._begun: dict[str, str] = {}
        self._file: TextIO | None = None

    def take(self, stream: str, text: str) -> None:
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
                remedy="make room or mend the permissions, then go on with --resume",
            ) from error
        *lines, rest = (self._begun.get(stream, "") + text).split("\n")
        self._begun[stream] = rest
        for line in lines:
            self._each_line(stream, line.rstrip("\r"))

    def close(self) -> None:
        """The last line may lack its end."""
        for stream, rest in self._begun.items():
            if rest:
                self._each_line(stream, rest)
        self._begun = {}
        if self._file is not None:
            self._file.close()
            self._file = None


def last_lines(path: Path, count: int = 8) -> list[str]:
    """The end of a log; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
