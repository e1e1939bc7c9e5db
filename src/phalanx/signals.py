"""Graceful stop: the first Ctrl-C or SIGTERM is recorded, the second ends the process at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_WATCHED = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\n\x1b[?25h"  # a live view hides it
_state = {"embedded": False}  # whether training runs inside a user's own process


def handle(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Any:
    """Handle a signal from now on. Returns the handler that was installed before.

    A process that was started with SIGTERM ignored keeps ignoring it: batch systems send it to every process of a job
    at once, and the launcher, which receives it too, stops them in order. (SIGINT is different: shells start
    background jobs with it ignored.) Python lets only the main thread install handlers; elsewhere this does nothing.
    """
    before = signal.getsignal(number)
    ignored = number == signal.SIGTERM and before is signal.SIG_IGN
    if not ignored and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)
    return before


def interrupt_at_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt, as Ctrl-C does."""
    handle(signal.SIGTERM, signal.default_int_handler)


def restore(number: signal.Signals, before: Any) -> None:
    """Install the handler that `handle` returned. One that was not installed from Python is left alone."""
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, before)


@contextmanager
def embedded() -> Iterator[None]:
    """While a user's own process trains: a second Ctrl-C raises KeyboardInterrupt instead of ending the process."""
    before, _state["embedded"] = _state["embedded"], True
    try:
        yield
    finally:
        _state["embedded"] = before


def write_line(text: str) -> None:
    """Write a line to the terminal, from a signal handler: print() may be interrupted in the middle of itself."""
    os.write(2, f"\n{text}\n".encode())


class StopRequest:
    """While entered, signals are only recorded, so that no step is interrupted. With `quiet` nothing is printed.

    `tell` prints a line, and is called by a signal handler.
    """

    def __init__(self, *, quiet: bool = False, tell: Callable[[str], None] = write_line) -> None:
        self._quiet, self._tell = quiet, tell
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __bool__(self) -> bool:
        return self.received is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells expect."""
        return 128 + self.received if self.received is not None else 0

    def __enter__(self) -> "StopRequest":
        for number in _WATCHED:
            self._before[number] = handle(number, self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            restore(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if _state["embedded"]:
                raise KeyboardInterrupt
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            os._exit(128 + number)
        self.received = signal.Signals(number)
        if self._quiet:
            return
        self._tell(f"{self.received.name}: finishing this step and saving; once more quits at once")
