"""A job of several processes, started from a user's own process: one child supervises it, and ends with this process.

So no event loop, no signal handler and no orphan of the job is in the user's process, which may be a notebook.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from phalanx.errors import EXIT_USER, UserError, parse_error
from phalanx.launch.agent import RECORD
from phalanx.launch.output import last_lines
from phalanx.launch.record import load_record
from phalanx.roles.request import Request
from phalanx.runs.folder import LOGS, log_path
from phalanx.signals import handle, restore

_LAST_LINES = 20


@dataclass(frozen=True)
class ChildJob:
    """A request, its run folder, and the options of `launch`; None runs it on this machine."""

    request: Request
    folder: Path
    options: Mapping[str, Any] | None

    def to_data(self) -> dict[str, Any]:
        return {
            "request": self.request.to_data(),
            "folder": str(self.folder),
            "at_step": self.request.at_step,
            "options": self.options,
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> "ChildJob":
        folder = Path(data["folder"])
        request = replace(Request.from_data(data["request"], folder), at_step=data["at_step"])
        return ChildJob(request, folder, data["options"])


def run_job(job: ChildJob, console: Console) -> int:
    """Run it to its end. Returns 0, or 128 + the signal that stopped it; raises an error where it failed."""
    with tempfile.TemporaryDirectory(prefix="phalanx-") as temporary:
        given, result = Path(temporary, "job.json"), Path(temporary, "result.json")
        given.write_text(json.dumps(job.to_data()), encoding="utf-8")
        received: list[signal.Signals] = []
        code, said = _run_child(
            [sys.executable, "-m", "phalanx.api.job_process", str(given), str(result)], console, received
        )
        outcome = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    if "error" in outcome:
        raise UserError(**outcome["error"])
    if code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        return 128 + received[0] if code and received else 0  # without a signal: `phalanx stop`
    raise _failure(job.folder, code, said)


def _run_child(argv: list[str], console: Console, received: list[signal.Signals]) -> tuple[int, list[str]]:
    """Run the supervisor. Returns its exit code, and its last lines where they were not printed to a terminal.

    Signals that arrive meanwhile are added to `received`.
    """
    inherit = console.is_terminal and not console.quiet and _is_ours(console)
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,  # a lifeline: when this process ends, however it ends, the job does
        stdout=None if inherit else subprocess.PIPE,
        stderr=None if inherit else subprocess.STDOUT,
        env={**os.environ, "PHALANX_LIFELINE": "stdin"},
        start_new_session=True,  # a Ctrl-C reaches this process alone, which passes it on once
        text=True,
        errors="replace",
    )
    assert child.stdin is not None
    said: deque[str] = deque(maxlen=_LAST_LINES)
    with child.stdin, _passing_signals(child, received):
        for line in child.stdout or ():
            said.append(line.rstrip("\n"))
            if not console.quiet:
                print(line, end="", flush=True)  # noqa: T201 - to the cell of a notebook, or the caller's own stdout
        code = child.wait()
    return code if code >= 0 else 128 - code, list(said)


def _is_ours(console: Console) -> bool:
    """Whether the console is this process's standard output, and not one that a program has put in its place."""
    try:
        return console.file.fileno() == 1
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _passing_signals(child: "subprocess.Popen[str]", received: list[signal.Signals]) -> Iterator[None]:
    """Pass Ctrl-C and SIGTERM on to the supervisor: the first has trainers save and end, the second ends them at once.

    In another thread than the main one no signal arrives.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if child.poll() is None:
            child.send_signal(number)

    before = {number: handle(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            restore(number, handler)


def _failure(folder: Path, code: int, said: list[str]) -> UserError:
    """What went wrong in a job: the error that its first failed process printed, or how that process ended."""
    folds = sorted(folder.glob(f"fold-*/{RECORD}"), key=lambda path: path.stat().st_mtime)
    try:
        record = load_record(folds[-1].parent if folds else folder)  # of a cross-validation: the fold that failed
    except UserError:
        return UserError(
            f"the job ended with exit code {code} before it began",
            why="\n".join(said) or "it printed nothing",
            remedy="`phalanx doctor` examines this machine",
        )
    log = log_path(Path(record.logs) if record.logs else folder / LOGS, record.cause.partition(" ")[0])
    ending = last_lines(log, _LAST_LINES)
    found = parse_error(ending) if code == EXIT_USER else None
    return found or UserError(
        record.cause or f"the job ended with exit code {code}",
        why="\n".join(ending or said) or "it printed nothing",
        remedy=f"its log is {log}; saved checkpoints are valid: phalanx.train(resume={str(folder)!r})",
    )
