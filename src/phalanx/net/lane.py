"""A lane: a TCP connection for large messages between two processes that share keys of its own.

ZeroMQ's CURVE proves who is at the other end, and encrypts at a fifth of the speed of memory. So small messages go over
it, and large ones over a lane next to it. Both ends get the lane's keys over CURVE, and every part of a message is
sealed by AES-GCM (`net/lane_cipher.py`).

A message is a head (the number of its frames, up to three, and their lengths), then the frames; each is sealed. Lengths
are proven before memory is allocated for them.
"""

import contextlib
import errno
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.net.control import MAX_MESSAGE_BYTES, Refused
from phalanx.net.lane_cipher import TAG_BYTES, Buffer, LaneCipher, empty_bytes
from phalanx.net.lane_loop import LaneLoop

MOST_FRAMES = 3
_HEAD = struct.Struct(f"<{1 + MOST_FRAMES}Q")
_BUFFERS_A_CALL = 32
_TURN_BYTES = 8 << 20  # that one lane may move before it is another one's turn


class LaneFrame:
    """A frame that came over a lane, as a zmq frame: its bytes, and what is known about the connection."""

    __slots__ = ("_peer", "buffer")

    def __init__(self, buffer: memoryview, peer: str) -> None:
        self.buffer, self._peer = buffer, peer

    def get(self, name: Any) -> Any:
        return self._peer if name == "Peer-Address" else -1

    def __len__(self) -> int:
        return len(self.buffer)


class LaneTracker:
    """Whether a message was sent, as zmq's tracker."""

    def __init__(self, *, done: bool = False) -> None:
        self.done = done


class Lane:
    """One end. `deliver` gets each message, `lost` is called once at the end; both in the loop's thread."""

    def __init__(
        self,
        loop: LaneLoop,
        connection: socket.socket,
        sending: LaneCipher,
        receiving: LaneCipher,
        deliver: Callable[[list[LaneFrame]], None],
        lost: Callable[["Lane"], None],
    ) -> None:
        self._loop, self._connection, self._sending, self._receiving = loop, connection, sending, receiving
        self._deliver, self._lost = deliver, lost
        connection.setblocking(False)
        self.peer = _peer(connection)
        self.open = True
        self._sealing = threading.Lock()
        self._unsent: deque[memoryview | LaneTracker] = deque()
        self._lengths: list[int] = []  # of the frames that are still to come
        self._frames: list[LaneFrame] = []
        self._in_head = True
        self._staging = memoryview(b"")
        self._place = self._room(_HEAD.size)  # for the part that is arriving
        self._filled = 0

    def start(self) -> None:
        """Begin to receive; in the loop's thread."""
        self._watch()

    # Sending

    def send(self, frames: Sequence[Buffer], *, copy: bool = True) -> LaneTracker:
        """Send a message, in turn. Safe from any thread. Without `copy` its frames must not change until it is sent.

        After the end of the connection it is dropped, which is `done`, too.
        """
        tracker = LaneTracker()
        lengths = [len(frame) for frame in frames]
        head = _HEAD.pack(len(frames), *lengths, *[0] * (MOST_FRAMES - len(frames)))
        with self._sealing:
            if not self.open:
                return LaneTracker(done=True)
            for part in (head, *frames):
                self._unsent.extend(memoryview(each) for each in self._sending.seal(part, copy=copy) if len(each))
            self._unsent.append(tracker)
        self._loop.call(self._write)
        return tracker

    @property
    def sent(self) -> bool:
        return not self._unsent

    def _write(self) -> None:
        moved = 0
        while self.open and self._unsent and moved < _TURN_BYTES:
            if isinstance(first := self._unsent[0], LaneTracker):
                first.done = True
                self._unsent.popleft()
                continue
            try:
                count = self._connection.sendmsg(self._next_buffers())
            except BlockingIOError:
                break
            except OSError:
                return self.close()
            moved += count
            self._drop_sent(count)
        return self._watch()

    def _next_buffers(self) -> list[memoryview]:
        """The buffers to send next, up to the end of a message. Other threads may append meanwhile."""
        buffers: list[memoryview] = []
        for number in range(min(len(self._unsent), _BUFFERS_A_CALL)):
            each = self._unsent[number]
            if isinstance(each, LaneTracker):
                break
            buffers.append(each)
        return buffers

    def _drop_sent(self, count: int) -> None:
        while count:
            first = self._unsent[0]
            assert isinstance(first, memoryview)
            if count < len(first):
                self._unsent[0] = first[count:]
                return
            count -= len(first)
            self._unsent.popleft()

    # Receiving

    def _read(self) -> None:
        moved = 0
        try:
            while self.open and moved < _TURN_BYTES:
                count = self._connection.recv_into(self._place[self._filled :])
                if count == 0:
                    return self.close()
                moved += count
                self._filled += count
                if self._filled == len(self._place):
                    self._part(self._receiving.open(self._place))
        except BlockingIOError:
            pass
        except (OSError, Refused):
            self.close()  # a connection that was damaged or rewritten: the other end opens a new one
        return None

    def _part(self, part: memoryview) -> None:
        """A part has arrived: the head of a message, or one of its frames."""
        if self._in_head:
            number, *lengths = _HEAD.unpack(part)
            if not 1 <= number <= MOST_FRAMES or max(lengths) > MAX_MESSAGE_BYTES:
                raise Refused("length")
            self._lengths, self._frames = lengths[:number], []
        else:
            self._frames.append(LaneFrame(part, self.peer))
        self._in_head, self._filled = not self._lengths, 0
        self._place = self._room(_HEAD.size if self._in_head else self._lengths.pop(0))
        if self._in_head:
            self._deliver(self._frames)

    def _room(self, length: int) -> memoryview:
        """Where a part arrives, with its tag. What is decrypted from there leaves it free for the next part."""
        size = length + TAG_BYTES
        if not self._receiving.encrypts:
            return empty_bytes(size)
        if len(self._staging) < size:
            self._staging = empty_bytes(size)
        return self._staging[:size]

    # The connection

    def _watch(self) -> None:
        if self.open:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            self._loop.watch(self._connection, events, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._read()
        if events & selectors.EVENT_WRITE and self.open:
            self._write()

    def close(self) -> None:
        """End the connection; in the loop's thread."""
        if not self.open:
            return
        with self._sealing:  # nobody appends from now on
            self.open = False
        self._loop.forget(self._connection)
        self._connection.close()
        for each in self._unsent:
            if isinstance(each, LaneTracker):
                each.done = True
        self._lost(self)


def tune(connection: socket.socket, silence_s: float) -> None:
    """Set up a connection of a lane: no delay, and an end if the other host is silent, whether we send or not.

    The sizes of the system's buffers are left alone: once set, they no longer grow with the link.
    """
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    times = {
        "TCP_USER_TIMEOUT": int(1000 * silence_s),  # of data that is not acknowledged
        "TCP_KEEPIDLE": max(1, round(silence_s / 2)),  # of silence, before it is asked whether the other end is there
        "TCP_KEEPINTVL": max(1, round(silence_s / 6)),
        "TCP_KEEPCNT": 3,
    }
    options += [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in times.items() if hasattr(socket, name)
    ]
    for level, option, value in options:
        with contextlib.suppress(OSError):
            connection.setsockopt(level, option, value)


def _peer(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
        return ""
