"""Going through a large file from its beginning, once: bounds are checked before anything is read or allocated."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Where the next wanted byte is near, the file is read on in large pieces; where it is far, as between the headers of
# photographs, only the header's page is fetched.
NEAR = 32 << 10
LARGE_PIECE = 1 << 20
SMALL_PIECE = 4 << 10


class Damaged(Exception):
    """The file is not what it should be from `offset` on; the message says how."""

    def __init__(self, offset: int, why: str) -> None:
        self.offset, self.why = offset, why
        super().__init__(offset, why)


@dataclass
class Window:
    """A file seen through a buffer. `at` brings bytes into it and says where in `buffer` they are."""

    path: Path  # as the user knows it
    descriptor: int
    size: int
    tell: Callable[[int], None] = lambda count: None  # is told how many more bytes lie behind
    buffer: bytes = b""
    start: int = 0  # of the buffer, in the file
    _told: int = field(default=0, repr=False)

    def at(self, offset: int, count: int, what: str) -> int:
        """The place in `buffer` of `count` bytes from `offset`; Damaged, naming `what`, where the file is too short."""
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
        if offset > self._told:
            self.tell(offset - self._told)
            self._told = offset
        if len(self.buffer) < count:
            raise Damaged(offset, f"the file became shorter while it was read: {what} is cut off")
        return 0

    def bytes_at(self, offset: int, count: int, what: str) -> bytes:
        """The bytes themselves."""
        place = self.at(offset, count, what)
        return self.buffer[place : place + count]

    def finished(self) -> None:
        self.tell(self.size - self._told)
        self._told = self.size


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """`count` bytes from `offset`, or fewer at the file's end. No file position is shared, so threads need no lock."""
    data = os.pread(descriptor, count, offset)
    if len(data) == count or not data:
        return data
    pieces = [data]
    while data and (count := count - len(data)) > 0:
        offset += len(data)
        data = os.pread(descriptor, count, offset)
        pieces.append(data)
    return b"".join(pieces)
