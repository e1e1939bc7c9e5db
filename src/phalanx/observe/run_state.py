"""The state of a run, from its files: whether it runs, how it ended, how fast it is."""

import platform
import re
import time
from pathlib import Path
from typing import Any

from phalanx.machine.processes import start_time
from phalanx.observe.history import History
from phalanx.runs.events import TIMES, Record
from phalanx.runs.inside import read_inside
from phalanx.runs.lock import LOCK

SILENT_S = 600.0  # a run on another host without an event for so long is called silent
_HOLDER = re.compile(r"process (\d+) on (\S+),")


def state_of(run: Path, history: History, job: dict[str, Any] | None, *, copied: bool = False) -> tuple[str, str]:
    """running, finished, stopped, failed, killed, silent or waiting; and why. `copied`: from another host."""
    ends = history.of_kind("start", "end", "stop")
    over: Record | None = ends[-1] if ends and ends[-1]["kind"] != "start" else None
    if over is not None and over["kind"] == "end":
        return "finished", ""
    if over is not None:
        return "stopped", str(over.get("reason") or "")
    if job and job.get("state") == "ended":
        cause = str(job.get("cause") or "")
        return ("failed" if job.get("exit_code") else "finished"), cause
    here = not copied  # processes of another host may have the numbers of ours
    supervised = _lives(job.get("pid"), job.get("host"), job.get("pid_start")) if job and here else None
    holder = _holder(run)
    alive = _lives(*holder) if holder and here else None
    if True in (alive, supervised):
        return ("running" if ends else "waiting"), ""
    if alive is None and (holder or job) and supervised is None:  # on another host: only its events can tell
        silent = time.time() - (history.last_t or 0.0)
        return ("running", "") if silent < SILENT_S else ("silent", f"no event for {silent / 60:.0f} min")
    if copied and history.last_t and time.time() - history.last_t < SILENT_S:
        return "running", ""
    if not ends:
        return "waiting", "training has not begun"
    return "killed", "its process is gone, and left no word about its end"


def _holder(run: Path) -> tuple[int, str] | None:
    """Which process trains it, by the lock's file."""
    try:
        found = _HOLDER.match(read_inside(run, LOCK).decode(errors="replace"))
    except OSError:
        return None
    return (int(found[1]), found[2]) if found else None


def _lives(pid: Any, host: Any, began: Any = None) -> bool | None:
    """Whether a process of this host lives; None where it is on another one."""
    if host != platform.node() or not isinstance(pid, int):
        return None
    now = start_time(pid)
    return now is not None and began in (None, now)


def steps_per_s(history: History) -> float | None:
    """The present speed, without evaluation and saving: from the times that the latest steps took."""
    if not history.last_steps:
        return None
    took = [sum(one.get(f"{name}_s") or 0.0 for name in TIMES) for one in history.last_steps]
    return len(took) / sum(took) if sum(took) > 0 else None
