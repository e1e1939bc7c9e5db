"""What threads have finished, on its way to a loop that waits for sockets: a pipe wakes the loop up."""

import os
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """Any thread puts; the loop drains when `reader` can be read."""

    def __init__(self) -> None:
        self._finished: deque[T] = deque()
        self.reader, self._writer = os.pipe()

    def put(self, finished: T) -> None:
        self._finished.append(finished)
        os.write(self._writer, b".")

    def drain(self, handler: Callable[[T], None]) -> None:
        for _ in os.read(self.reader, 64):
            handler(self._finished.popleft())

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)
