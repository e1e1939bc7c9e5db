"""The log that a process keeps itself: of a first trainer that has the terminal, and with --log-dir under any launcher.

What other roles of our own launchers print is kept by the launcher (output.py).
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
    """Where this process keeps its log, if it is to keep one."""
    if role.log is not None:
        return role.log
    if config.train.log_dir is None or role.launcher == "phalanx":
        return None
    return log_path(Path(config.train.log_dir), role.name)


def keep_log(path: Path, role: Role) -> Console:
    """Open the log: what is printed on the console that this gives, and all errors, are in it as plain lines."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8", errors="surrogateescape", buffering=1)
    except OSError as error:
        raise UserError(
            f"the log {path} cannot be written",
            why=error.strerror or str(error),
            remedy="make room or mend the permissions, or choose another place with --log-dir",
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
