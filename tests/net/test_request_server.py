"""A server answers requests of its protocol, and only counts all other messages. Real sockets."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.client_channel import LARGE_BYTES
from phalanx.net.messages import Message, unpack_error
from phalanx.net.poll_loop import drain
from phalanx.net.request_server import PeerRequest, RequestServer
from phalanx.net.server_channel import ServerChannel
from tests.net.test_messages import ELSE, WIRE, Header, Kind


class Sockets:
    """A server with one handler and its client."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        options = {zmq.ROUTER_MANDATORY: 1}
        self.channel = ServerChannel(context, address, "", "a server", harm="ask", options=options)
        self.client = context.socket(zmq.DEALER)
        self.client.connect(address)
        self.refused: Counter[str] = Counter()
        self.server = RequestServer(self.channel, WIRE, self.refused, {Kind.ADD: self.add})

    def add(self, request: PeerRequest[Header]) -> None:
        if request.header.large == 13:
            raise UserError("13 cannot be added")
        self.server.send(request.identity, request.header.reply(Kind.ADD), bytes(request.message.control))

    def serve(self) -> None:
        assert self.channel.socket.poll(10_000)
        drain(self.channel, self.server.handle)

    def ask(self, header: Header, control: bytes = b"") -> Message[Header]:
        self.client.send_multipart(WIRE.frames(header, control))
        self.serve()
        assert self.client.poll(10_000)
        return WIRE.unpack(self.client.recv_multipart(copy=False))


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Sockets]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield Sockets(context, f"ipc://{tmp_path}/server")
    context.destroy(linger=0)


def test_requests_are_answered_by_their_kind(sockets: Sockets) -> None:
    assert bytes(sockets.ask(Header(Kind.ADD, 1), b"sum").control) == b"sum"
    failed = sockets.ask(Header(Kind.ADD, 13))
    assert failed.header.kind is Kind.FAILED
    assert unpack_error(failed.control).what == "13 cannot be added"
    assert not sockets.refused


def test_other_messages_are_counted_and_get_no_answer(sockets: Sockets) -> None:
    sockets.client.send(b"garbage")
    sockets.client.send_multipart(ELSE.frames(Header(Kind.ADD)))
    sockets.client.send_multipart(WIRE.frames(Header(Kind.ADDED)))
    while sockets.refused.total() < 3:
        sockets.serve()
    assert sockets.refused == {"garbage": 2, "kind": 1}
    assert not sockets.client.poll(0)


def test_a_message_to_a_client_that_is_gone_is_dropped(sockets: Sockets) -> None:
    sockets.server.send(b"nobody", Header(Kind.ADD))


def test_a_large_message_to_a_client_without_a_lane_is_dropped() -> None:
    with zmq.Context() as context:
        channel = ServerChannel(context, "tcp://127.0.0.1:0", "", "a server", harm="ask")
        server = RequestServer(channel, WIRE, Counter(), {})
        assert server.send_tracked(b"nobody", Header(Kind.ADD), b"", bytes(1 + LARGE_BYTES)).done
        channel.close(0)
