"""Stopping politely: the first Ctrl-C or SIGTERM is noted, the second ends the process at once."""

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_WATCHED = (signal.SIGINT, signal.SIGTERM)


def handle(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Any:
    """Handle a signal from now on. Returns what was done about it before.

    A process that was started deaf to SIGTERM stays so: batch systems send it to every process of a job at once, and
    the launcher, which hears it too, has them stop in order. (SIGINT is no such sign: shells start jobs behind & so.)
    """
    before = signal.getsignal(number)
    if number != signal.SIGTERM or before is not signal.SIG_IGN:
        signal.signal(number, handler)
    return before


class StopRequest:
    """While entered, signals only leave a note, so that a step is never cut in two. With `quiet` nothing is said."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
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
            self._before[number] = handle(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = signal.Signals(number)
        if self._quiet:
            return
        message = f"\n{self.received.name}: finishing this step and saving; once more quits at once\n"
        os.write(2, message.encode())  # print() may be interrupted in the middle of itself
