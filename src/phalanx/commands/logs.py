"""`phalanx logs`: what the roles of a job have printed, and go on printing."""

import contextlib
import time
from pathlib import Path
from typing import IO, TextIO

from phalanx.config.resolve import flatten
from phalanx.errors import UserError, nearest
from phalanx.launch.agent import RECORD
from phalanx.launch.record import load_record
from phalanx.runs.folder import LOGS, RunFolder

_LOOK_S = 0.2


def print_logs(run: Path, role: str | None, *, follow: bool, out: TextIO) -> None:
    """Print the log of one role, or of all with the role's name before each line."""
    folder = logs_of(run)
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if role is None and not follow and not paths:
        raise UserError(f"{run} has no logs", why=f"there is nothing in {folder}", remedy="give a run's folder")
    if role is not None and role not in paths:
        known = [record.name for record in load_record(run).roles] if not paths else list(paths)
        raise UserError(
            f"there is no log of {role!r} in {folder}",
            why="no such role has printed anything",
            remedy=nearest(role, known),
        )
    _print(run, folder, role, follow, out)


def logs_of(run: Path) -> Path:
    """The folder of a run's logs: as its job says, or where no launcher of ours was, as its settings do."""
    if (run / RECORD).exists():
        return Path(load_record(run).logs or run / LOGS)
    with contextlib.suppress(UserError):
        told = flatten(RunFolder(run).layer().values).get("train.log_dir")
        return Path(str(told)) if told else run / LOGS
    return run / LOGS


def _print(run: Path, folder: Path, role: str | None, follow: bool, out: TextIO) -> None:
    opened: dict[str, IO[str]] = {}
    begun: dict[str, str] = {}  # lines that lack their end
    try:
        while True:
            going = follow and (run / RECORD).exists() and load_record(run).conducted
            for path in sorted(folder.glob(f"{role or '*'}.log")):
                if path.stem not in opened:
                    opened[path.stem] = path.open(encoding="utf-8", errors="replace", newline="\n")
                *lines, begun[path.stem] = (begun.get(path.stem, "") + opened[path.stem].read()).split("\n")
                if begun[path.stem] and not going:
                    lines.append(begun[path.stem])
                prefix = "" if role else f"{path.stem} | "
                out.writelines(f"{prefix}{line}\n" for line in lines)
            out.flush()
            if not going:
                return
            time.sleep(_LOOK_S)
    finally:
        for file in opened.values():
            file.close()
