"""`phalanx logs`: what the roles of a job have printed, and go on printing."""

import time
from pathlib import Path
from typing import IO, TextIO

from phalanx.errors import UserError, nearest
from phalanx.launch.output import LOGS
from phalanx.launch.record import load_record

_LOOK_S = 0.2


def print_logs(run: Path, role: str | None, *, follow: bool, out: TextIO) -> None:
    """Print the log of one role, or of all with the role's name before each line."""
    paths = {path.stem: path for path in sorted((run / LOGS).glob("*.log"))}
    if role is None and not follow and not paths:
        raise UserError(f"{run} has no logs", why=f"there is nothing in {run / LOGS}", remedy="give a run's folder")
    if role is not None and role not in paths:
        known = [record.name for record in load_record(run).roles] if not paths else list(paths)
        raise UserError(
            f"there is no log of {role!r} in {run / LOGS}",
            why="a first trainer that has the terminal leaves its log in log.txt"
            if role in ("trainer-0",)
            else "no such role has printed anything",
            remedy=f"cat {run / 'log.txt'}" if role == "trainer-0" else nearest(role, known),
        )
    _print(run, role, follow, out)


def _print(run: Path, role: str | None, follow: bool, out: TextIO) -> None:
    opened: dict[str, IO[str]] = {}
    try:
        while True:
            going = follow and load_record(run).conducted
            for path in sorted((run / LOGS).glob(f"{role or '*'}.log")):
                if path.stem not in opened:
                    opened[path.stem] = path.open(encoding="utf-8", errors="replace", newline="\n")
                prefix = "" if role else f"{path.stem} | "
                for line in opened[path.stem]:
                    out.write(f"{prefix}{line}" if line.endswith("\n") else f"{prefix}{line}\n")
            out.flush()
            if not going:
                return
            time.sleep(_LOOK_S)
    finally:
        for file in opened.values():
            file.close()
