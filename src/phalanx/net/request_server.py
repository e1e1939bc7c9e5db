"""The server's side of requests and replies: dispatch by kind, refused messages, errors."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import zmq

from phalanx.errors import UserError
from phalanx.net.client_channel import Sent
from phalanx.net.control import Refused
from phalanx.net.lane import LaneTracker
from phalanx.net.messages import Buffer, H, Message, Wire, pack_error
from phalanx.net.server_channel import ServerChannel


@dataclass(frozen=True, slots=True)
class PeerRequest(Generic[H]):
    """A message and the connection that it came from."""

    identity: bytes
    message: Message[H]
    frame: Any  # the header's zmq frame, which knows the connection

    @property
    def header(self) -> H:
        return self.message.header


class RequestServer(Generic[H]):
    """Dispatches messages of a channel to handlers by their kind, and never raises because of a message.

    A refused message is counted in `refused`, and gets no reply. A UserError goes back to the sender.
    """

    def __init__(
        self,
        channel: ServerChannel,
        wire: Wire[H],
        refused: Counter[str],
        handlers: Mapping[Any, Callable[[PeerRequest[H]], None]],
    ) -> None:
        self._channel, self._wire, self._refused, self._handlers = channel, wire, refused, handlers

    def handle(self, frames: list[Any]) -> PeerRequest[H] | None:
        """Handle one message, as zmq frames: the sender's identity, then the message. None if it is none."""
        request = None
        try:
            if len(frames) < 2:
                raise Refused("garbage")
            request = PeerRequest(bytes(frames[0].buffer), self._wire.unpack(frames[1:]), frames[1])
            self._dispatch(request)
        except Refused as refused:
            self._refused[refused.reason] += 1
        except UserError as error:
            assert request is not None  # only handlers raise it
            self.send(request.identity, request.header.reply(self._wire.failed), pack_error(error))
        return request

    def _dispatch(self, request: PeerRequest[H]) -> None:
        handler = self._handlers.get(request.header.kind)
        if handler is None:
            raise Refused("kind")
        handler(request)

    def send(
        self, identity: bytes, header: H, control: bytes = b"", body: Buffer | None = None, *, copy: bool = True
    ) -> None:
        """Send a message. A client that is gone does not get it; if it is connecting anew, it asks again."""
        try:
            self._channel.send_multipart([identity, *self._wire.frames(header, control, body)], copy=copy)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def send_tracked(self, identity: bytes, header: H, control: bytes, body: Buffer) -> Sent:
        """The same without a copy of its body. The tracker says when the body is no longer needed."""
        frames = [identity, *self._wire.frames(header, control, body)]
        try:
            tracker = self._channel.send_multipart(frames, copy=False, track=True)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return LaneTracker(done=True)
        assert tracker is not None
        return tracker


class Connections:
    """Counts connections that end and never sent a message of ours, as refused."""

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._known: set[int] = set()  # descriptors

    def heard(self, request: PeerRequest[H] | None) -> None:
        """What `RequestServer.handle` returned."""
        if request is not None:
            self._known.add(int(request.frame.get(zmq.SRCFD)))

    def ended(self, descriptor: int) -> None:
        if descriptor in self._known:
            self._known.discard(descriptor)
        else:
            self._refused["connection"] += 1
