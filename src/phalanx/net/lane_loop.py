"""The thread that moves bytes of lanes: one for all lanes of a channel."""

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

TICK_S = 0.5

Handler = Callable[[int], None]  # gets the events: selectors.EVENT_READ, EVENT_WRITE


class Wakeup:
    """A descriptor that becomes readable when another thread has called `set`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # it is set already, or closed
            self._writer.send(b".")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class LaneLoop:
    """Watches sockets in a thread of its own. Handlers and what `call` is given run in that thread."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        self._tick = tick
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()
        self._closing = False
        self._selector.register(self._wakeup, selectors.EVENT_READ, lambda _: self._wakeup.clear())
        self._thread = threading.Thread(target=self._run, name="phalanx-lanes", daemon=True)
        self._pid = os.getpid()
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function soon. Safe from any thread."""
        self._calls.append(function)
        self._wakeup.set()

    def watch(self, source: socket.socket, events: int, handler: Handler) -> None:
        """Call the handler on these events; only in the loop's thread. Changes what was asked for before."""
        try:
            self._selector.modify(source, events, handler)
        except KeyError:
            self._selector.register(source, events, handler)

    def forget(self, source: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def close(self, last: Callable[[], None] = lambda: None) -> None:
        """End the thread, after a last call in it."""
        if self._closing:
            return

        def end() -> None:
            last()
            self._closing = True

        self.call(end)
        self._thread.join(10)
        self._selector.close()
        self._wakeup.close()

    def _run(self) -> None:
        while not self._closing:
            for key, events in self._selector.select(TICK_S):
                key.data(events)
            while self._calls:
                self._calls.popleft()()
            self._tick()
