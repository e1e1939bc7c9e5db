"""The loop of a server process: handle what arrives, tick every so often, stop on a signal."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import zmq

from phalanx.signals import handle

TICK_S = 0.5
_BURST = 64  # messages between looks at the clock


class Receiving(Protocol):
    """What messages come from, as lists of frames. Raises zmq.Again where none is there."""

    def recv_multipart(self) -> list[Any]: ...


class PollLoop:
    """Calls the handler of each source that is ready, and `tick` every TICK_S."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._next_tick = time.monotonic()
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], None]] = {}

    def add(self, source: Any, handler: Callable[[], None]) -> None:
        """Call `handler` whenever a socket or a file descriptor can be read."""
        self._poller.register(source, zmq.POLLIN)
        self._handlers[source] = handler

    def remove(self, source: Any) -> None:
        self._poller.unregister(source)
        del self._handlers[source]

    def turn(self, wait_s: float = TICK_S, *, tick: bool = False) -> None:
        """Wait for at most `wait_s`, and handle what is there. `tick` has the tick come now."""
        ready = dict(self._poller.poll(int(1000 * wait_s)))
        for source, handler in list(self._handlers.items()):
            if source in ready:
                handler()
        if tick or time.monotonic() >= self._next_tick:
            self._tick()
            self._next_tick = time.monotonic() + TICK_S


def drain(channel: Receiving, handler: Callable[[list[Any]], object]) -> None:
    """Handle the messages that have arrived, but not so many that the clock is forgotten."""
    for _ in range(_BURST):
        try:
            frames = channel.recv_multipart()
        except zmq.Again:
            return
        handler(frames)


class StopFlag:
    """Whether a signal has asked the process to stop, and whether another one has asked `again`."""

    def __init__(self) -> None:
        self._signals = 0

    def __bool__(self) -> bool:
        return self._signals > 0

    @property
    def again(self) -> bool:
        return self._signals > 1

    def set(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


@contextmanager
def stop_on(*signals: signal.Signals) -> Iterator[StopFlag]:
    """Note these signals instead of ending the process."""
    stop = StopFlag()
    before = {number: handle(number, stop.set) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
