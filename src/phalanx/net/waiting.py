"""Waiting for other processes of a job: they may start minutes apart, but nobody waits in silence for who or what."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from phalanx.errors import UserError

FIRST_WORD_S = 10.0  # how long nothing is said
_NEXT_WORD_S = 30.0
_CONNECT_S = 5.0
_AGAIN_S = 0.2


class Store(Protocol):
    """What is used of torch's stores, by which processes of a job tell one another where they are."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...


def say(text: str) -> None:
    """One line, on the errors: on some ranks nothing else is shown."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Patience:
    """Says every so often what is waited for, and when there is no more point in it."""

    def __init__(self, timeout_s: float) -> None:
        self.begun = time.monotonic()
        self.timeout_s = timeout_s
        self._word = self.begun + FIRST_WORD_S

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._word

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.begun + self.timeout_s

    def word(self, text: str) -> None:
        """Say what is missing."""
        now = time.monotonic()
        self._word = now + _NEXT_WORD_S
        say(f"{text} (for {now - self.begun:.0f} s; ends after {self.timeout_s:g} s)")


def here() -> str:
    """This host, for messages."""
    return socket.gethostname()


def await_listener(me: str, peer: str, host: str, port: int, timeout_s: float) -> None:
    """Until somebody listens there. `me` and `peer` are who waits, and who is to listen."""
    patience = Patience(timeout_s)
    while True:
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=_CONNECT_S):
                return
        except OSError as error:
            why = told(error)
        if patience.over:
            raise UserError(
                f"{me} on {here()} cannot reach {peer} at {host}:{port}",
                why=f"{why}, for {timeout_s:g} s",
                remedy=f"see whether {peer} was started, on that host, with that port, and what blocks the way to it",
            )
        if patience.due:
            patience.word(f"{me} on {here()} waits for {peer} at {host}:{port}: {why}")
        time.sleep(_AGAIN_S)


def told(error: OSError) -> str:
    """Why a connection failed, and what that says."""
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
    """What all have put into the store under these keys. `name` says who puts it there, for those who do not come.

    `look` is called every so often, and raises where there is no point in waiting. A store whose host is cut off or
    stopped never answers: so it is asked in a thread of its own.
    """
    patience = Patience(timeout_s)
    asking = _Asking(store, list(keys))
    try:
        while not asking.done.wait(_AGAIN_S):
            look()
            if not (patience.due or patience.over):
                continue
            missing = [name(key) for key in asking.missing]
            count = f"{len(keys) - len(missing)} of {len(keys)}"
            if patience.over:
                raise UserError(
                    f"{me} on {here()} waits in vain for {_some(missing)}",
                    why=f"{count} came within {timeout_s:g} s (exchange.timeout_s)",
                    remedy="see whether those were started, and what they say",
                )
            patience.word(f"{me} on {here()} waits for {_some(missing)}; {count} are here")
    finally:
        asking.given_up = True
    if asking.error is not None:
        raise asking.error
    return asking.found


class _Asking(threading.Thread):
    """Asks a store until it has all that is wanted."""

    def __init__(self, store: Store, keys: list[str]) -> None:
        super().__init__(name="phalanx-gather", daemon=True)
        self._store, self._keys = store, keys
        self.missing = keys  # as far as is known
        self.found: list[bytes] = []
        self.error: Exception | None = None
        self.done = threading.Event()
        self.given_up = False  # by whoever waits
        self.start()

    def run(self) -> None:
        try:
            while not self.given_up and not self._store.check(
                self._keys
            ):  # torch's own waiting says each time that it was in vain
                self.missing = [key for key in self._keys if not self._store.check([key])]
                time.sleep(_AGAIN_S)
            self.found = [] if self.given_up else [self._store.get(key) for key in self._keys]
        except Exception as error:  # for the thread that waits
            self.error = error
        self.done.set()


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
