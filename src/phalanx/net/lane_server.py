"""Where a server accepts lanes: it tells a client over CURVE how to open one, and takes no other connection."""

import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import UserError
from phalanx.net.interfaces import candidate_ports
from phalanx.net.lane import Lane, LaneFrame, LaneTracker, tune
from phalanx.net.lane_cipher import KEY_BYTES, Buffer, LaneCipher
from phalanx.net.lane_loop import LaneLoop
from phalanx.net.listeners import LANES, note_listener

TOKEN_BYTES = 32
OPEN = b"open"  # the server's first message on a lane: it has accepted the token
_TOKEN_S = 10.0  # within which a connection has to send its token
_ISSUED_S = 60.0  # within which a token has to be used
_MOST_UNPROVEN = 64  # connections without a token at a time


@dataclass
class _Issued:
    """A lane that a client was told to open."""

    identity: bytes
    keys: tuple[bytes, bytes]  # from client to server, and back
    encrypt: bool
    since: float = field(default_factory=time.monotonic)


class _Unproven:
    """A connection that has not sent its token yet: it may make us hold that many bytes, for a few seconds."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.token, self.since = connection, b"", time.monotonic()


class LaneServer:
    """Listens for lanes at `host`. `deliver` gets each message and its sender's identity, in the loop's thread."""

    def __init__(self, host: str, deliver: Callable[[bytes, list[LaneFrame]], None], silence_s: float) -> None:
        self._deliver, self._silence_s = deliver, silence_s
        self._listener = _bound(host)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        note_listener(LANES, f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}")
        self._lock = threading.Lock()  # over the next three: the server's thread sends while the loop's opens lanes
        self._issued: dict[bytes, _Issued] = {}  # by token
        self._lanes: dict[bytes, Lane] = {}  # by identity
        self._waiting: dict[bytes, list[list[Buffer]]] = {}  # by identity: messages, until its lane is open
        self._unproven: deque[_Unproven] = deque()
        self._loop = LaneLoop(self._tick)
        self._loop.call(lambda: self._loop.watch(self._listener, selectors.EVENT_READ, self._accept))

    def issue(self, identity: bytes, *, encrypt: bool) -> dict[str, Any]:
        """How the client of this identity opens a lane, once. To be sent over CURVE."""
        token = secrets.token_bytes(TOKEN_BYTES)
        issued = _Issued(identity, (secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)), encrypt)
        with self._lock:
            self._issued[token] = issued
            self._waiting.setdefault(identity, [])
        keys = [key.hex() for key in issued.keys]
        return {"port": self.port, "token": token.hex(), "keys": keys, "encrypt": encrypt}

    def send(self, identity: bytes, frames: Sequence[Buffer], *, copy: bool) -> LaneTracker | None:
        """Send to a client by its lane; None if it has none."""
        with self._lock:
            lane = self._lanes.get(identity)
            if lane is None:
                if identity not in self._waiting:
                    return None
                self._waiting[identity].append([bytes(frame) for frame in frames])
                return LaneTracker(done=True)
        return lane.send(frames, copy=copy)

    def close(self, linger_s: float) -> None:
        """Stop, after what is on its way was sent, but not later than `linger_s`."""
        deadline = time.monotonic() + linger_s
        while time.monotonic() < deadline and not all(lane.sent for lane in list(self._lanes.values())):
            time.sleep(0.01)
        self._loop.close(self._end)

    def _end(self) -> None:
        for lane in list(self._lanes.values()):
            lane.close()
        for unproven in self._unproven:
            unproven.connection.close()
        self._listener.close()

    def _accept(self, events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        while len(self._unproven) >= _MOST_UNPROVEN:
            self._drop(self._unproven[0])
        unproven = _Unproven(connection)
        self._unproven.append(unproven)
        self._loop.watch(connection, selectors.EVENT_READ, lambda _: self._prove(unproven))

    def _prove(self, unproven: _Unproven) -> None:
        try:
            received = unproven.connection.recv(TOKEN_BYTES - len(unproven.token))
        except BlockingIOError:
            return
        except OSError:
            received = b""
        unproven.token += received
        if not received:
            self._drop(unproven)
        elif len(unproven.token) == TOKEN_BYTES:
            self._open(unproven)

    def _open(self, unproven: _Unproven) -> None:
        with self._lock:
            # Looked up, not compared byte by byte: the time that it takes does not help to guess 32 random bytes.
            issued = self._issued.pop(unproven.token, None)
            if issued is not None:
                self._unproven.remove(unproven)
                before, lane = self._lanes.get(issued.identity), self._lane(unproven.connection, issued)
                self._lanes[issued.identity] = lane
                lane.send([OPEN])
                for frames in self._waiting.pop(issued.identity, []):
                    lane.send(frames)
        if issued is None:
            return self._drop(unproven)
        if before is not None:
            before.close()
        return lane.start()

    def _lane(self, connection: socket.socket, issued: _Issued) -> Lane:
        tune(connection, self._silence_s)
        incoming, outgoing = (LaneCipher(key, encrypt=issued.encrypt) for key in issued.keys)
        identity = issued.identity
        return Lane(
            *(self._loop, connection, outgoing, incoming),
            deliver=lambda frames: self._deliver(identity, frames),
            lost=lambda lane: self._forget(identity, lane),
        )

    def _forget(self, identity: bytes, lane: Lane) -> None:
        with self._lock:
            if self._lanes.get(identity) is lane:
                del self._lanes[identity]

    def _drop(self, unproven: _Unproven) -> None:
        self._loop.forget(unproven.connection)
        unproven.connection.close()
        self._unproven.remove(unproven)

    def _tick(self) -> None:
        now = time.monotonic()
        while self._unproven and now - self._unproven[0].since > _TOKEN_S:
            self._drop(self._unproven[0])
        with self._lock:
            for token in [each for each, issued in self._issued.items() if now - issued.since > _ISSUED_S]:
                del self._issued[token]
            for identity in self._waiting.keys() - {issued.identity for issued in self._issued.values()}:
                del self._waiting[identity]


def _bound(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in candidate_ports():
        listener = socket.socket(family)
        # Its connections keep a port for a minute after their end: a job that starts again in a narrow range needs it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
            return listener
        except OSError:
            listener.close()
    raise UserError(
        f"there is no free port at {host}",
        why="a server needs a second one, for large messages",
        remedy="give a wider --port-range (PHALANX_PORT_RANGE), or leave it out",
    )
