"""A server's end of connections from clients that have the key: a ROUTER socket, and lanes for large messages."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import zmq

from phalanx.net.allowlist import Allowlist
from phalanx.net.bind import listen
from phalanx.net.client_channel import GONE, LANE, LARGE_BYTES, Sent
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.lane import LaneFrame
from phalanx.net.lane_cipher import Buffer
from phalanx.net.lane_loop import Wakeup
from phalanx.net.lane_server import LaneServer
from phalanx.net.poll_loop import PollLoop

_SILENCE_S = 30.0


class ServerChannel:
    """Sends and receives messages as lists of frames, of which the first is the client's identity.

    By an ipc address, which only this user reaches, all messages go over the socket. `encrypt` has lanes encrypted
    even if the client does not ask for it.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        who: str,
        *,
        harm: str,
        encrypt: bool = False,
        options: Mapping[zmq.SocketOption, int] | None = None,
        allowlist: Allowlist | None = None,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self.socket = listen(context, address, key, who, harm=harm, options=options, allowlist=allowlist)
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._encrypt = encrypt
        self._arrived: deque[tuple[bytes, list[LaneFrame]]] = deque()
        self._wakeup = Wakeup()
        parts = urlsplit(self.address)
        self._lanes = LaneServer(parts.hostname or "", self._deliver, silence_s) if parts.scheme == "tcp" else None

    def watch(self, loop: PollLoop, handler: Callable[[], None]) -> None:
        """Have a loop call the handler when messages are there."""
        loop.add(self.socket, handler)
        loop.add(self._wakeup.fileno(), handler)

    def send_multipart(self, frames: Sequence[Buffer], *, copy: bool = True, track: bool = False) -> Sent | None:
        """Send to a client. Raises zmq's EHOSTUNREACH where it is gone, or is still connecting."""
        identity, *message = frames
        if self._lanes is None or sum(map(len, message)) <= LARGE_BYTES:
            return self.socket.send_multipart(list(frames), copy=copy, track=track)
        sent = self._lanes.send(bytes(identity), message, copy=copy)
        if sent is None:
            self.socket.send_multipart([bytes(identity), LANE, GONE])  # it opens another one, and asks again
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        return sent

    def recv_multipart(self) -> list[Any]:
        """The next message, as zmq frames. Raises zmq.Again where none is there."""
        while True:
            if not self._arrived:
                self._wakeup.clear()
            if self._arrived:
                identity, frames = self._arrived.popleft()
                return [LaneFrame(memoryview(identity), frames[0].get("Peer-Address")), *frames]
            received: list[Any] = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            if len(received) == 3 and bytes(received[1].buffer) == LANE:
                self._offer(bytes(received[0].buffer), received[2].buffer)
                continue
            return received

    def close(self, linger_s: float) -> None:
        if self._lanes is not None:
            self._lanes.close(linger_s)
        self.socket.close(linger=int(1000 * linger_s))
        self._wakeup.close()

    def _offer(self, identity: bytes, wish: Buffer) -> None:
        """A client asks for a lane."""
        if self._lanes is None:
            return
        try:
            encrypt = bool(from_json(wish).get("encrypt")) or self._encrypt
            self.socket.send_multipart([identity, LANE, as_json(self._lanes.issue(identity, encrypt=encrypt))])
        except (Refused, zmq.ZMQError):
            return  # nonsense, or it is gone again

    def _deliver(self, identity: bytes, frames: list[LaneFrame]) -> None:
        self._arrived.append((identity, frames))
        self._wakeup.set()
