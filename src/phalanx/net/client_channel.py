"""A client's end of a connection to a server that has the key: a DEALER socket, and a lane for large messages."""

import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import zmq

from phalanx.net.connect import client_socket, connect
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.lane import Lane, LaneFrame, LaneTracker, tune
from phalanx.net.lane_cipher import Buffer, LaneCipher
from phalanx.net.lane_loop import LaneLoop, Wakeup

LANE = b"lane"  # the first frame of messages about lanes
GONE = b"gone"  # the server's word that it has no lane to this client, and something large to send
LARGE_BYTES = 32 << 10  # messages above this go over a lane
_ASK_AGAIN_S = 2.0  # for a lane, while there is none
_CONNECT_S = 5.0
_SILENCE_S = 30.0

Sent = zmq.MessageTracker | LaneTracker


class ClientChannel:
    """Sends and receives messages as lists of frames. By an ipc address all of them go over the socket.

    A lane that breaks is opened anew; what was on its way is lost, as with a socket that connects again: protocols
    repeat what gets no reply.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        *,
        encrypt: bool,
        options: Mapping[zmq.SocketOption, int | bytes],
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._address, self._encrypt, self._silence_s = address, encrypt, silence_s
        self.socket = client_socket(context, address, key, options)
        self._uses_lane = urlsplit(address).scheme == "tcp"
        self._loop = LaneLoop() if self._uses_lane else None
        self._wakeup = Wakeup()
        self._lock = threading.Lock()  # over the next three: the loop's thread opens the lane, the caller's sends
        self._opening = False
        self._opened: Lane | None = None  # the loop's thread alone uses it
        self._lane: Lane | None = None  # once the server has accepted it
        self._waiting: list[list[Buffer]] = []  # large messages, until the lane is open
        self._asked = 0.0
        self._arrived: deque[list[LaneFrame]] = deque()
        self._closed = False

    def connect(self, server: str, forms: str) -> None:
        """Connect as soon as the server listens. `server` names it in messages; `forms` are addresses that work."""
        connect(self.socket, self._address, server, forms)
        self._poller = zmq.Poller()
        self.register(self._poller)

    def register(self, poller: zmq.Poller) -> None:
        """Have a poller return when messages are there."""
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self._wakeup.fileno(), zmq.POLLIN)

    def unregister(self, poller: zmq.Poller) -> None:
        poller.unregister(self.socket)
        poller.unregister(self._wakeup.fileno())

    def poll(self, timeout_ms: int) -> bool:
        return bool(self._arrived) or bool(self._poller.poll(timeout_ms))

    def send_multipart(self, frames: Sequence[Buffer], flags: int = 0, *, copy: bool = True) -> None:
        self._ask_for_lane()
        if not self._uses_lane or sum(map(len, frames)) <= LARGE_BYTES:
            self.socket.send_multipart(list(frames), flags, copy=copy)
            return
        with self._lock:
            lane = self._lane
            if lane is None:
                self._waiting.append([bytes(frame) for frame in frames] if copy else list(frames))
        if lane is not None:
            lane.send(frames, copy=copy)

    def recv_multipart(self) -> list[Any]:
        """The next message, as zmq frames. Raises zmq.Again where none is there."""
        self._ask_for_lane()
        while True:
            if not self._arrived:
                self._wakeup.clear()
            if self._arrived:
                return list(self._arrived.popleft())
            received: list[Any] = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            if len(received) == 2 and bytes(received[0].buffer) == LANE:
                self._open(received[1].buffer)
                continue
            return received

    def close(self, linger: int = 0) -> None:
        self._closed = True
        if self._loop is not None:
            self._loop.close(self._end)
        self.socket.close(linger=linger)
        self._wakeup.close()

    def _ask_for_lane(self) -> None:
        """Ask the server for a lane where there is none; again if there is no reply."""
        now = time.monotonic()
        if self._uses_lane and self._lane is None and now > self._asked + _ASK_AGAIN_S:
            self._asked = now
            try:
                self.socket.send_multipart([LANE, as_json({"encrypt": self._encrypt})], zmq.NOBLOCK)
            except zmq.Again:
                self._asked = 0.0  # not connected

    def _open(self, offer: Buffer) -> None:
        """Open the lane that the server offers, in a thread of its own: connecting may take seconds."""
        if offer == GONE:
            # After a network was cut, TCP may have told the other end, and not this one.
            if self._loop is not None:
                self._loop.call(self._end)
            return
        try:
            offered = from_json(offer)
            port, token = int(offered["port"]), bytes.fromhex(offered["token"])
            outgoing, incoming = (
                LaneCipher(bytes.fromhex(key), encrypt=bool(offered["encrypt"])) for key in offered["keys"]
            )
        except (Refused, KeyError, TypeError, ValueError):
            return
        with self._lock:
            if self._opening or self._lane is not None:
                return  # it was asked for twice
            self._opening = True
        threading.Thread(
            target=self._connect_lane, args=(port, token, outgoing, incoming), name="phalanx-lane", daemon=True
        ).start()

    def _connect_lane(self, port: int, token: bytes, outgoing: LaneCipher, incoming: LaneCipher) -> None:
        host = urlsplit(self._address).hostname or ""
        try:
            connection = sockets.create_connection((host, port), timeout=_CONNECT_S)
            tune(connection, self._silence_s)
            connection.sendall(token)
        except OSError:
            self._opening = False  # asked for again
            return
        assert self._loop is not None
        lane = Lane(self._loop, connection, outgoing, incoming, self._deliver, self._forget)
        self._loop.call(lambda: self._start(lane))

    def _start(self, lane: Lane) -> None:
        self._opened = lane
        if self._closed:
            lane.close()
        else:
            lane.start()

    def _deliver(self, frames: list[LaneFrame]) -> None:
        if self._lane is None:
            self._accepted()
            return
        self._arrived.append(frames)
        self._wakeup.set()

    def _accepted(self) -> None:
        """The server's first message: the lane is open, and takes what waits for it."""
        with self._lock:
            assert self._opened is not None
            self._lane, self._opening = self._opened, False
            for frames in self._waiting:
                self._lane.send(frames, copy=False)
            self._waiting = []

    def _forget(self, lane: Lane) -> None:
        with self._lock:
            if lane is not self._opened:
                return
            self._lane, self._opened, self._opening, self._asked = None, None, False, 0.0
        self._wakeup.set()  # the caller asks for another one

    def _end(self) -> None:
        if self._opened is not None:
            self._opened.close()
