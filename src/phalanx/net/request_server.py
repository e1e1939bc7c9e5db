"""The server's side of requests and replies: dispatch by kind, challenges, refused messages, errors."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import zmq

from phalanx.errors import UserError
from phalanx.net.client_channel import Sent
from phalanx.net.messages import Buffer, H, Message, Seal, Wire, pack_error
from phalanx.net.seal import Refused, as_json
from phalanx.net.server_channel import ServerChannel

_MOST_CHALLENGES = 1000


@dataclass(frozen=True, slots=True)
class PeerRequest(Generic[H]):
    """A proven message and the connection that it came from."""

    identity: bytes
    message: Message[H]
    frame: Any  # the header's zmq frame, which knows the connection

    @property
    def header(self) -> H:
        return self.message.header


class Challenges:
    """Random numbers that are used once, so that a recorded message is refused."""

    def __init__(self) -> None:
        self._open: dict[bytes, str] = {}

    def issue(self, identity: bytes) -> str:
        """The challenge for a connection. It stays the same until it is used.

        A worker that starts before its server says hello several times, and uses the challenge that arrives first.
        """
        if len(self._open) > _MOST_CHALLENGES:  # only a broken client can get here: others do not have the key
            self._open.clear()
        return self._open.setdefault(identity, secrets.token_hex(16))

    def check(self, identity: bytes, nonce: object) -> None:
        """Refuse a message without the challenge of its own connection."""
        expected = self._open.pop(identity, None)
        if expected is None or nonce != expected:
            raise Refused("replay")


class RequestServer(Generic[H]):
    """Dispatches messages of a channel to handlers by their kind, and never raises because of a message.

    The reply to a hello is a challenge. A refused message is counted in `refused`, and gets no reply. A UserError goes
    back to the sender.
    """

    def __init__(
        self,
        channel: ServerChannel,
        seal: Seal[H],
        wire: Wire[H],
        refused: Counter[str],
        handlers: Mapping[Any, Callable[[PeerRequest[H]], None]],
    ) -> None:
        self._channel, self._seal, self._wire, self._refused, self._handlers = channel, seal, wire, refused, handlers
        self.challenges = Challenges()

    def handle(self, frames: list[Any]) -> PeerRequest[H] | None:
        """Handle one message, as zmq frames: the sender's identity, then the message. None if it proves no key."""
        request = None
        try:
            if len(frames) < 2:
                raise Refused("garbage")
            request = PeerRequest(bytes(frames[0].buffer), self._seal.unpack(frames[1:]), frames[1])
            self._dispatch(request)
        except Refused as refused:
            self._refused[refused.reason] += 1
        except UserError as error:
            assert request is not None  # only handlers raise it
            self.send(request.identity, request.header.reply(self._wire.failed), pack_error(error))
        return request

    def _dispatch(self, request: PeerRequest[H]) -> None:
        kind = request.header.kind
        if kind is self._wire.hello:
            nonce = self.challenges.issue(request.identity)
            self.send(request.identity, request.header.reply(self._wire.challenge), as_json({"nonce": nonce}))
        elif kind in self._handlers:
            self._handlers[kind](request)
        else:
            raise Refused("kind")

    def send(
        self, identity: bytes, header: H, control: bytes = b"", body: Buffer | None = None, *, copy: bool = True
    ) -> None:
        """Send a message. A client that is gone does not get it; if it is connecting anew, it asks again."""
        try:
            self._channel.send_multipart([identity, *self._seal.frames(header, control, body)], copy=copy)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def send_tracked(self, identity: bytes, header: H, control: bytes, body: Buffer) -> Sent:
        """Send a message without a copy of its body. The tracker says when the body is no longer needed."""
        frames = [identity, *self._seal.frames(header, control, body)]
        tracker = self._channel.send_multipart(frames, copy=False, track=True)
        assert tracker is not None
        return tracker
