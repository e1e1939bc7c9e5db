"""Follows a batch job: shows its queue state while it waits and its log while it runs; Ctrl-C cancels it."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

from phalanx.config.text import read_json
from phalanx.errors import EXIT_OURS
from phalanx.launch.agent import RECORD
from phalanx.launch.launchers.scheduler import Scheduler, State

_LOOK_S = 2.0
_READ_S = 0.2
_FORGOTTEN_S = 60.0  # without an answer from the scheduler, the job counts as ended


class Cancelled(BaseException):
    """Ctrl-C, SIGTERM or SIGHUP. Not an Exception, so that no `except Exception` catches it."""


def follow(scheduler: Scheduler, job: str, run: Path, log: Path, console: Console, out: TextIO) -> int:
    """Follow the job to its end. Returns its exit code."""
    tail = Tail(log, out)
    with interruptible():
        try:
            return _watch(scheduler, job, run, tail, console)
        except Cancelled:
            _say(console, f"cancelling job {job}; it saves a checkpoint if it can. Press Ctrl-C again to stop waiting")
            scheduler.cancel(job)
        try:
            _watch(scheduler, job, run, tail, console)
        except Cancelled:
            _say(console, f"job {job} may not have ended yet")
        return 128 + signal.SIGINT


def _watch(scheduler: Scheduler, job: str, run: Path, tail: "Tail", console: Console) -> int:
    display = StateDisplay(console, job)
    last_answer = time.monotonic()
    try:
        while True:
            state = scheduler.state(job)
            if state.kind != "unknown":
                last_answer = time.monotonic()
            display.show(state)
            until = time.monotonic() + _LOOK_S
            while time.monotonic() < until:
                tail.read()
                time.sleep(_READ_S)
            if state.kind == "ended" or time.monotonic() - last_answer > _FORGOTTEN_S:
                tail.read()
                code = _code(state, run)
                display.end(state, code)
                return code
    finally:
        display.close()


def _code(state: State, run: Path) -> int:
    """The exit code from the scheduler, or else from the launcher's record."""
    if state.code is not None:
        return state.code
    try:
        return int(read_json((run / RECORD).read_bytes())["exit_code"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError):  # the job ended before it had one
        return EXIT_OURS


class StateDisplay:
    """Shows the state: as a spinner in a terminal, otherwise as a line for each change."""

    def __init__(self, console: Console, job: str) -> None:
        self._console, self._job = console, job
        self._last: State | None = None
        self._status: Status | None = None

    def show(self, state: State) -> None:
        text = f"job {self._job} is {state.kind}{f': {state.detail}' if state.detail else ''}"
        if self._console.is_terminal and state.kind == "waiting":
            if self._status is None:
                self._status = self._console.status(Text(text))
                self._status.start()
            self._status.update(Text(text))
        elif state != self._last and state.kind != "ended":
            self.close()
            _say(self._console, text)
        self._last = state

    def end(self, state: State, code: int) -> None:
        self.close()
        _say(self._console, f"job {self._job} has ended{f': {state.detail}' if state.detail else ''}, exit code {code}")

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class Tail:
    """Prints what is appended to a file."""

    def __init__(self, path: Path, out: TextIO) -> None:
        self._path, self._out = path, out
        self._at = path.stat().st_size if path.exists() else 0

    def read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        self._at += len(added)
        if added:
            self._out.write(added.decode(errors="replace"))
            self._out.flush()


@contextmanager
def interruptible(*, hangup: bool = False) -> Iterator[None]:
    """While entered, Ctrl-C and SIGTERM raise Cancelled; with `hangup` the terminal's end, too (not under nohup)."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the shell and the kernel both send it: a second one would end the cleaning up
            signal.signal(number, signal.SIG_IGN)
            before.pop(number, None)
        raise Cancelled

    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if hangup and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: dict[int, Callable[..., object] | int | None] = {}
    for number in numbers:
        before[number] = signal.signal(number, raise_it)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
