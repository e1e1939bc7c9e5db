"""What a process of a job leaves for its agent when it fails: its error, and the role whose loss caused it."""

import contextlib
import json
from pathlib import Path
from typing import Any

from phalanx.errors import UserError

ENDING = ".ending"  # the suffix of the file, beside that of the role's input
_state: dict[str, Path] = {}


def leave_ending_at(path: Path) -> None:
    """Have `leave_ending` write there. In processes that no agent started, it does nothing."""
    _state["path"] = path


def leave_ending(error: UserError) -> None:
    """Note why this process is about to end."""
    if "path" in _state:
        with contextlib.suppress(OSError):  # a full disk: the log still has the error
            _state["path"].write_text(json.dumps({"what": error.what, "lost": error.lost}), encoding="utf-8")


def take_ending(path: Path) -> dict[str, Any]:
    """What a process has left, if anything. The next one finds nothing there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
