"""What a server process did, as JSON lines in the run's folder."""

import json
import os
import time
from pathlib import Path
from typing import Any

from phalanx.runs.events import AppendedLines


class ServerLog:
    """Writes one line for each event, or nothing where there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._lines: AppendedLines | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            _end_torn_line(path)
            self._lines = AppendedLines(path)

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        if self._lines is not None:
            self._lines.line(json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}))

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()


def _end_torn_line(path: Path) -> None:
    """Begin on a line of our own: a process that was killed, or a full disk, may have left half of one."""
    if path.exists():
        with path.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
