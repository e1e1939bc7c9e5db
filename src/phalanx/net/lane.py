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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from phalanx.net.control import MAX_MESSAGE_BYTES, Refused
from phalanx.net.lane_cipher import BLOCK_BYTES, SLACK_BYTES, Frame, LaneCipher, Opening
from phalanx.net.lane_loop import LaneLoop
from phalanx.net.receive_buffers import ReceiveBuffers

MOST_FRAMES = 3
_HEAD = struct.Struct(f"<{1 + MOST_FRAMES}Q")
_TURN_BYTES = 2 << 20  # that one lane may move before it is another one's turn


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
        self._sending_lock = threading.Lock()
        self._unsent: deque[tuple[Iterator[memoryview], LaneTracker]] = deque()  # messages, sealed as they are sent
        self._sealed: list[memoryview] = []  # of the first of them: what is sent next
        self._lengths: list[int] = []  # of the frames that are still to come
        self._frames: list[LaneFrame] = []
        self._in_head = True
        self._buffers = ReceiveBuffers()
        self._opening = self._open(_HEAD.size)  # the part that is arriving

    def start(self) -> None:
        """Begin to receive; in the loop's thread."""
        self._watch()

    # Sending

    def send(self, frames: Sequence[Frame], *, copy: bool = True) -> LaneTracker:
        """Send a message, in turn. Safe from any thread. Without `copy` its frames must not change until it is sent.

        After the end of the connection it is dropped, which is `done`, too.
        """
        tracker = LaneTracker()
        lengths = [len(frame) for frame in frames]
        head = _HEAD.pack(len(frames), *lengths, *[0] * (MOST_FRAMES - len(frames)))
        message = self._sealed_blocks([head, *(bytes(frame) if copy else frame for frame in frames)])
        with self._sending_lock:
            if not self.open:
                return LaneTracker(done=True)
            self._unsent.append((message, tracker))
        self._loop.call(self._write)
        return tracker

    @property
    def sent(self) -> bool:
        return not self._unsent

    def _sealed_blocks(self, parts: Sequence[Frame]) -> Iterator[memoryview]:
        for part in parts:
            yield from self._sending.seal(part)

    def _write(self) -> None:
        moved = 0
        while self.open and moved < _TURN_BYTES and self._seal_next():
            try:
                count = self._connection.sendmsg(self._sealed)
            except BlockingIOError:
                break
            except OSError:
                return self.close()
            moved += count
            self._drop_sent(count)
        return self._watch()

    def _seal_next(self) -> bool:
        """Have something sealed to send, up to the end of a message; False where there is none."""
        while self._unsent and not self._sealed:
            message, tracker = self._unsent[0]
            size = 0
            for block in message:
                self._sealed.append(block)
                size += len(block)
                if size >= BLOCK_BYTES:
                    break
            if not self._sealed:
                tracker.done = True
                self._unsent.popleft()
        return bool(self._sealed)

    def _drop_sent(self, count: int) -> None:
        for number, block in enumerate(self._sealed):
            if count < len(block):
                self._sealed = [block[count:], *self._sealed[number + 1 :]]
                return
            count -= len(block)
        self._sealed = []

    # Receiving

    def _read(self) -> None:
        moved = 0
        try:
            while self.open and moved < _TURN_BYTES:
                count = self._connection.recvmsg_into(self._opening.room())[0]
                if count == 0:
                    return self.close()
                moved += count
                part = self._opening.arrived(count)
                if part is not None:
                    self._part(part)
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
        self._in_head = not self._lengths
        self._opening = self._open(_HEAD.size if self._in_head else self._lengths.pop(0))
        if self._in_head:
            frames, self._frames = self._frames, []
            self._deliver(frames)

    def _open(self, length: int) -> Opening:
        return self._receiving.open(self._buffers.take(length + SLACK_BYTES))

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
        with self._sending_lock:  # nobody appends from now on
            self.open = False
        self._loop.forget(self._connection)
        self._connection.close()
        for _, tracker in self._unsent:
            tracker.done = True
        self._sealed = []
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
