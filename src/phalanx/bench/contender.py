"""A program that makes batches when it is told to: started once, measured in turns, watched, and ended.

It prints JSON lines: {"ready": true} once it has made a batch, then, for each number of seconds that it is sent, what
came of them. See `serve` in peers.py. Others of a kind wait meanwhile, so all meet the same neighbours on the machine.
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

START_TIMEOUT_S = 300.0  # a peer may write the data in its own form first
ANSWER_TIMEOUT_S = 60.0  # beyond the time that was asked for
LAST_WORDS = 2  # lines of its complaint that are told
WATCH_EVERY_S = 0.25


class ContenderFailed(Exception):
    """It ended, or did not answer. The message says why, in its own last words."""


@dataclass
class Turns:
    """What came of a contender's turns."""

    rates: list[float] = field(default_factory=list)  # images/s
    cpu_s: list[float] = field(default_factory=list)  # per image
    memory_bytes: int = 0  # at the most, shared pages counted once


class Contender:
    """One program. Used as a context manager, it and all that it started are gone at the end."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name, self.turns = name, Turns()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with the contender)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
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

    def wait_until_ready(self) -> None:
        self._answer(START_TIMEOUT_S)

    def take_turn(self, seconds: float) -> None:
        """Have it make batches for so long, and note the result."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except OSError:
            raise ContenderFailed(self._last_words()) from None
        told = self._answer(seconds + ANSWER_TIMEOUT_S)
        self.turns.rates.append(told["images"] / told["seconds"])
        self.turns.cpu_s.append(told["cpu_s"] / max(1, told["images"]))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # not ours: something that a library said
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self.turns.memory_bytes = max(self.turns.memory_bytes, memory_of(self._process.pid))
            try:
                told = self._answers.get(timeout=WATCH_EVERY_S)
            except Empty:
                continue
            if told is None:
                raise ContenderFailed(self._last_words())
            return told
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
    with suppress(OSError, ValueError):  # it may end while it is looked at
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = 1024 * int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(memory_of(int(child)) for child in (task / "children").read_text().split())
    return total
