"""Waiting for other processes of a job, which may start minutes apart; says every so often what is missing."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from phalanx.errors import UserError

FIRST_LINE_S = 10.0  # before the first line about what is missing
_NEXT_LINE_S = 30.0
_CONNECT_S = 5.0
_FIRST_S, _AGAIN_S = 0.01, 0.2  # between looks: at first, and after some


class Store(Protocol):
    """The part that we use of torch's stores, where processes of a job exchange addresses and settings."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...


def say(text: str) -> None:
    """Print a line to standard error: on some ranks nothing else is shown."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Patience:
    """How long a process waits: when a line about what is missing is due, and when the time is over."""

    def __init__(self, timeout_s: float) -> None:
        self.begun = time.monotonic()
        self.timeout_s = timeout_s
        self._next_line = self.begun + FIRST_LINE_S

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next_line

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.begun + self.timeout_s

    def report(self, text: str) -> None:
        """Print what is missing, and for how long."""
        now = time.monotonic()
        self._next_line = now + _NEXT_LINE_S
        say(f"{text} (for {now - self.begun:.0f} s; ends after {self.timeout_s:g} s)")


def pauses() -> Iterator[float]:
    """Seconds between looks: short at first, since most processes of a job start together."""
    pause_s = _FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _AGAIN_S)


def here() -> str:
    """This host, for messages."""
    return socket.gethostname()


def await_listener(me: str, other: str, host: str, port: int, timeout_s: float) -> None:
    """Wait until a process listens at a port. `me` and `other` name both processes in messages."""
    patience = Patience(timeout_s)
    while True:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=_CONNECT_S):
                return
        except OSError as error:
            why = connect_failure(error)
        if patience.over:
            raise UserError(
                f"{me} on {here()} cannot reach {other} at {host}:{port}",
                why=f"{why}, for {timeout_s:g} s",
                remedy=f"check that {other} was started on that host with that port, and that no firewall blocks it",
            )
        if patience.due:
            patience.report(f"{me} on {here()} waits for {other} at {host}:{port}: {why}")
        time.sleep(_AGAIN_S)


def connect_failure(error: OSError) -> str:
    """Why a connection failed, and what that means."""
    if isinstance(error, TimeoutError):
        return "no answer: that host is down, or a firewall drops what is sent there"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nobody listens there yet"
    return error.strerror or str(error)


def gather(
    store: Store,
    me: str,
    keys: Sequence[str],
    timeout_s: float,
    name: Callable[[str], str] = str,
    look: Callable[[], None] = lambda: None,
) -> list[bytes]:
    """The values of all keys, once they are in the store. `name` gives the process behind a key, for messages.

    `look` is called every so often, and raises to end the wait. A store whose host is unreachable or stopped never
    answers: so a thread of its own reads it.
    """
    patience = Patience(timeout_s)
    reader = _Reader(store, list(keys))
    try:
        while not reader.done.wait(_AGAIN_S):
            look()
            if not (patience.due or patience.over):
                continue
            missing = [name(key) for key in reader.missing]
            count = f"{len(keys) - len(missing)} of {len(keys)}"
            if patience.over:
                raise UserError(
                    f"{me} on {here()} waited in vain for {_some(missing)}",
                    why=f"{count} came within {timeout_s:g} s (exchange.timeout_s)",
                    remedy="check that they were started, and see their output",
                )
            patience.report(f"{me} on {here()} waits for {_some(missing)}; {count} are here")
    finally:
        reader.given_up = True
    if reader.error is not None:
        raise reader.error
    return reader.found


class _Reader(threading.Thread):
    """Reads a store until it has all keys."""

    def __init__(self, store: Store, keys: list[str]) -> None:
        super().__init__(name="phalanx-gather", daemon=True)
        self._store, self._keys = store, keys
        self.missing = keys  # as of the last look
        self.found: list[bytes] = []
        self.error: Exception | None = None
        self.done = threading.Event()
        self.given_up = False  # set by the thread that waits
        self.start()

    def run(self) -> None:
        try:
            # Not torch's own wait, which prints a warning each time that it ends without the keys.
            pause_s = pauses()
            while not self.given_up and not self._store.check(self._keys):
                self.missing = [key for key in self._keys if not self._store.check([key])]
                time.sleep(next(pause_s))
            self.found = [] if self.given_up else [self._store.get(key) for key in self._keys]
        except Exception as error:  # for the thread that waits
            self.error = error
        self.done.set()


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
