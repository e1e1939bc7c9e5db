"""A contender: a program that makes batches on request. It is started once and measured in turns.

It prints JSON lines: {"ready": true} after its first batch, then a result for each requested turn; see `serve` in
turns.py. The other contenders wait meanwhile, so all run under the same load of the machine.
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

START_TIMEOUT_S = 300.0  # a peer may convert the data first
ANSWER_TIMEOUT_S = 60.0  # beyond the requested time
LAST_WORDS = 2  # lines of its errors that are shown
WATCH_EVERY_S = 0.25


class ContenderFailed(Exception):
    """It ended, or did not answer. The message has its last lines of output."""


@dataclass(frozen=True)
class Turn:
    """A request: this many seconds, or this many batches."""

    seconds: float
    batches: int | None = None
    # Use up batches that were prefetched while others were measured, before the clock starts.
    warm_up_s: float = 1.0
    warm_up_batches: int = 10


@dataclass
class Turns:
    """The results of a contender's turns."""

    rates: list[float] = field(default_factory=list)  # images/s
    cpu_s: list[float] = field(default_factory=list)  # per image
    memory_bytes: int = 0  # the peak; shared pages count once


class Contender:
    """One program. Used as a context manager, it and all that it started are gone at the end.

    Without an `environment` it has this process's own; `memory` counts the bytes that a process holds.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        memory: Callable[[int], int] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.name, self.turns = name, Turns()
        self.ready_s, self._begun = 0.0, time.monotonic()
        self._memory = memory or memory_of
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with the contender)
        self._process = subprocess.Popen(
            command,
            env=environment or None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
        )
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> "Contender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._complaints.close()

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait for its first batch. Returns what it reports about itself."""
        about = self._answer(self._start_timeout_s)
        self.ready_s = time.monotonic() - self._begun
        return about

    def take_turn(self, turn: Turn) -> int:
        """Run one turn and note the result. Returns the number of images."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(turn)) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise ContenderFailed(self._last_words()) from None
        reply = self._answer(turn.seconds + self._answer_timeout_s)
        self.turns.rates.append(reply["images"] / reply["seconds"])
        self.turns.cpu_s.append(reply["cpu_s"] / max(1, reply["images"]))
        return int(reply["images"])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # output of a library
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self.turns.memory_bytes = max(self.turns.memory_bytes, self._memory(self._process.pid))
            try:
                reply = self._answers.get(timeout=WATCH_EVERY_S)
            except Empty:
                continue
            if reply is None:
                raise ContenderFailed(self._last_words())
            if "failed" in reply:
                raise ContenderFailed(reply["failed"])
            return reply
        raise ContenderFailed(f"it did not answer within {timeout_s:.0f} s")

    def _last_words(self) -> str:
        code = self._process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()]
        return " / ".join(words[-LAST_WORDS:]) or f"it ended with code {code}"


def memory_of(pid: int) -> int:
    """Bytes that a process and all below it hold; a page that n processes share counts 1/n for each."""
    total = 0
    with suppress(OSError, ValueError):  # it may end meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = 1024 * int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(memory_of(int(child)) for child in (task / "children").read_text().split())
    return total


def peak_of(pid: int) -> int:
    """The peak memory of a process, from the kernel."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0
