"""A job on lab hosts: its launcher, what that prints and when, its processes, and its run folder."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.hosts import Lab, Process

_USUAL = r"epoch \d+ done: |validation at step \d+: |data: \d+ samples/s from "
PROGRESS = re.compile(rf"epoch \d+ batch \d+/\d+ step (\d+): |{_USUAL}")
_OUTCOME = re.compile(
    r"(\S+ \| )?(done$|(best|last|trained|speed|folder|next|workers|job finished|checkpoints are on)[: ])"
)
_ROLE = re.compile(r"(\S+@\S+) \| ")
_OURS = {"tests.lab.delay", "benchmarks.chaos.stranger", "benchmarks.chaos.taken_ports"}
_QUOTE = "  "  # the launcher's margin before a line of a log


@dataclass(frozen=True)
class Line:
    """A line of the launcher's output, and when it came."""

    at: float
    text: str

    @property
    def step(self) -> int | None:
        found = PROGRESS.search(self.text)
        return int(found[1]) if found and found[1] else None


class Job:
    """Runs from its construction on. `alive` sees all that it started, on any host."""

    def __init__(self, lab: Lab, host: str, words: list[str], run: Path, cwd: Path, env: dict[str, str]) -> None:
        self._lab, self.run = lab, run
        self._before = {one.pid for one in lab.processes("")}
        self.began = time.monotonic()
        argv = [sys.executable, "-m", "phalanx", *words]
        self.launcher = lab.start(host, argv, cwd=cwd, env={"COLUMNS": "2000", **env})
        self.lines: list[Line] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.pid = lab.inner(self.launcher)

    def _read(self) -> None:
        assert self.launcher.stdout is not None
        for text in self.launcher.stdout:
            self.lines.append(Line(time.monotonic(), text.rstrip()))

    @property
    def step(self) -> int:
        """The last step that the first trainer printed; 0 before it did."""
        return next((line.step for line in reversed(self.lines) if line.step is not None), 0)

    @property
    def ended(self) -> bool:
        return self.launcher.poll() is not None

    def alive(self) -> list[Process]:
        """Roles, agents, ssh clients and whatever they started. Not a host's own sshd, nor what makes the fault."""
        mine = [one for one in self._lab.processes("") if one.pid not in self._before]
        return [one for one in mine if not one.words[0].startswith("sshd") and not _OURS & set(one.words)]

    def role(self, name: str) -> Process | None:
        """The process of a role."""
        found = self._lab.processes(f"PHALANX_NAME={name}\0")
        return min((one for one in found if one.pid not in self._before), key=lambda one: one.pid, default=None)

    def log_sizes(self) -> dict[str, int]:
        """How far the roles' logs are."""
        return {path.name: path.stat().st_size for path in self.run.glob("logs/*.log")}

    def logged(self, since: Mapping[str, int]) -> list[str]:
        """What is in the roles' logs from there on, without progress: the screen does not show all of it."""
        lines: list[str] = []
        for path in sorted(self.run.glob("logs/*.log")):
            text = path.read_bytes()[since.get(path.name, 0) :].decode(errors="replace")
            lines += [line for line in text.splitlines() if line and not PROGRESS.search(line)]
        return [line for line in lines if not _OUTCOME.match(line)]

    def said(self, since: float) -> list[Line]:
        """What was printed from then on, without progress."""
        shown = [line for line in self.lines if line.at >= since and line.text]
        return [line for line in shown if not PROGRESS.search(line.text) and not _OUTCOME.match(line.text)]

    def own_words(self, since: float) -> str:
        """The same, of the launcher and of errors of roles, without quotes of logs."""
        words = [line.text for line in self.said(since)]
        kept = [text for text in words if not text.startswith(_QUOTE) and not _ROLE.match(text)]
        return " / ".join(kept or words)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def finish_reading(self) -> None:
        self._reading.join(timeout=5)

    def kill(self) -> None:
        """Whatever is left of it."""
        for one in self.alive():
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.launcher.wait(10)

    def resume_command(self) -> list[str] | None:
        """The words that its last message gives to resume it."""
        for line in reversed(self.lines):
            if "to resume from the last checkpoint: " in line.text:
                return shlex.split(line.text.partition("checkpoint: ")[2])[1:]
        return None
