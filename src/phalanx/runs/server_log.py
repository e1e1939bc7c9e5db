"""What a server process did, as JSON lines in the run's folder."""

import json
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
            self._lines = AppendedLines(path)

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        if self._lines is not None:
            self._lines.line(json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}))

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
