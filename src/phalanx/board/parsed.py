"""Files of runs, parsed once for each time that they change: a table of 200 runs is drawn every two seconds."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_Identity = tuple[int, int, int, int]
_MOST = 4096  # files


class ParsedFiles:
    """What a function made of each file, or the error that it raised. Thread-safe."""

    def __init__(self, parse: Callable[[Path, str], Any]) -> None:
        self._parse = parse
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[_Identity, Any, Exception | None]] = {}

    def get(self, run: Path, name: str) -> Any:
        """As `parse(run, name)`. Nobody may change what it returns."""
        path = run / name
        try:
            about = os.lstat(path)
        except OSError:
            return self._parse(run, name)  # says in its own way that it is missing
        identity = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        with self._lock:
            known = self._known.get(path)
        if known is None or known[0] != identity:
            known = (identity, *self._tried(run, name))
            with self._lock:
                self._known[path] = known
                while len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]
        if known[2] is not None:
            raise known[2]
        return known[1]

    def _tried(self, run: Path, name: str) -> tuple[Any, Exception | None]:
        try:
            return self._parse(run, name), None
        except Exception as error:  # of any kind: it is raised again for each who asks
            return None, error.with_traceback(None)
