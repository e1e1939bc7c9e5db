"""Reading a large file once, from its beginning: bounds are checked before anything is read or allocated."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# If the next byte to read is near, large pieces of the file are read. If it is far, as from one photograph's header to
# the next, only a page is read.
NEAR = 32 << 10
LARGE_PIECE = 1 << 20
SMALL_PIECE = 4 << 10


class Damaged(Exception):
    """A file is damaged from `offset` on; `why` says how."""

    def __init__(self, offset: int, why: str) -> None:
        self.offset, self.why = offset, why
        super().__init__(offset, why)


@dataclass
class Window:
    """A buffer over a file. `at` reads bytes into `buffer` and returns their position in it."""

    path: Path  # as the user knows it
    descriptor: int
    size: int
    advance: Callable[[int], None] = lambda count: None  # progress: called with the number of bytes passed
    buffer: bytes = b""
    start: int = 0  # of the buffer, in the file
    _passed: int = field(default=0, repr=False)

    def at(self, offset: int, count: int, what: str) -> int:
        """The position in `buffer` of `count` bytes from `offset`. Raises Damaged, naming `what`, at the file's end."""
        place = offset - self.start
        if place >= 0 and place + count <= len(self.buffer):
            return place
        if offset + count > self.size:
            left = max(0, self.size - offset)
            raise Damaged(offset, f"the file ends {left:,} bytes into {what}, which needs {count:,}")
        far = not -NEAR < offset - (self.start + len(self.buffer)) < NEAR
        wanted = max(count, SMALL_PIECE if far else LARGE_PIECE)
        self.buffer = read_at(self.descriptor, offset, min(wanted, self.size - offset))
        self.start = offset
        if offset > self._passed:
            self.advance(offset - self._passed)
            self._passed = offset
        if len(self.buffer) < count:
            raise Damaged(offset, f"the file became shorter while it was read: {what} is cut off")
        return 0

    def bytes_at(self, offset: int, count: int, what: str) -> bytes:
        """The same bytes, copied."""
        place = self.at(offset, count, what)
        return self.buffer[place : place + count]

    def finished(self) -> None:
        self.advance(self.size - self._passed)
        self._passed = self.size


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """`count` bytes from `offset`, or fewer at the file's end. Threads share no file position, and need no lock."""
    data = os.pread(descriptor, count, offset)
    if len(data) == count or not data:
        return data
    pieces = [data]
    while data and (count := count - len(data)) > 0:
        offset += len(data)
        data = os.pread(descriptor, count, offset)
        pieces.append(data)
    return b"".join(pieces)
