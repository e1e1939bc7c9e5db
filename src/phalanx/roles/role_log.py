"""The log that a process writes itself: a first trainer with the terminal, or any role with --log-dir.

For other roles our launchers write the log (launch/output.py).
"""

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.runs.folder import log_path

_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def log_of(role: Role, config: RunConfig) -> Path | None:
    """The log that this process writes, if any."""
    if role.log is not None:
        return role.log
    if config.train.log_dir is None or role.launcher == "phalanx":
        return None
    return log_path(Path(config.train.log_dir), role.name)


def keep_log(path: Path, role: Role) -> Console:
    """Open the log. It gets what is printed to the returned console, and standard error, as plain lines."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8", errors="surrogateescape", buffering=1)
    except OSError as error:
        raise UserError(
            f"the log {path} cannot be written",
            why=error.strerror or str(error),
            remedy="free disk space or fix the permissions, or choose another folder with --log-dir",
        ) from error
    file.write(f"{role.name} of {role.world} on {platform.node()}, pid {os.getpid()}\n")
    sys.stderr = _Both(sys.stderr, file)
    return Console(file=file, force_terminal=False, color_system=None)


class _Both:
    """A stream whose text also goes to a log, there without styles."""

    def __init__(self, stream: TextIO, log: TextIO) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.write(_STYLES.sub("", text))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
