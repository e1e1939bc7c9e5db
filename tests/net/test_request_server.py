"""A server answers requests that prove the key, and only counts all others. Real sockets."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.messages import Message, unpack_error
from phalanx.net.poll_loop import drain
from phalanx.net.request_server import Challenges, PeerRequest, RequestServer
from phalanx.net.seal import Refused, from_json
from phalanx.net.server_channel import ServerChannel
from tests.net.test_messages import OURS, THEIRS, WIRE, Header, Kind


def test_a_repeated_hello_gets_the_same_challenge_which_can_be_answered_once() -> None:
    """A worker that starts before its server repeats its hello; all of them arrive when the server starts."""
    challenges = Challenges()
    first = challenges.issue(b"worker")
    assert challenges.issue(b"worker") == first
    assert challenges.issue(b"other") != first
    challenges.check(b"worker", first)
    with pytest.raises(Refused, match="replay"):
        challenges.check(b"worker", first)
    assert challenges.issue(b"worker") != first


class Sockets:
    """A server with one handler and its client."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        options = {zmq.ROUTER_MANDATORY: 1}
        self.channel = ServerChannel(context, address, "", "a server", harm="ask", options=options)
        self.client = context.socket(zmq.DEALER)
        self.client.connect(address)
        self.refused: Counter[str] = Counter()
        self.server = RequestServer(self.channel, OURS, WIRE, self.refused, {Kind.ADD: self.add})

    def add(self, request: PeerRequest[Header]) -> None:
        if request.header.large == 13:
            raise UserError("13 cannot be added")
        self.server.send(request.identity, request.header.reply(Kind.ADD), bytes(request.message.control))

    def serve(self) -> None:
        assert self.channel.socket.poll(10_000)
        drain(self.channel, self.server.handle)

    def ask(self, header: Header, control: bytes = b"") -> Message[Header]:
        self.client.send_multipart(OURS.frames(header, control))
        self.serve()
        assert self.client.poll(10_000)
        return OURS.unpack(self.client.recv_multipart(copy=False))


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Sockets]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield Sockets(context, f"ipc://{tmp_path}/server")
    context.destroy(linger=0)


def test_requests_are_answered_by_their_kind(sockets: Sockets) -> None:
    assert len(from_json(sockets.ask(Header(Kind.HELLO)).control)["nonce"]) == 32
    assert bytes(sockets.ask(Header(Kind.ADD, 1), b"sum").control) == b"sum"
    failed = sockets.ask(Header(Kind.ADD, 13))
    assert failed.header.kind is Kind.FAILED
    assert unpack_error(failed.control).what == "13 cannot be added"
    assert not sockets.refused


def test_other_messages_are_counted_and_get_no_answer(sockets: Sockets) -> None:
    sockets.client.send(b"garbage")
    sockets.client.send_multipart(THEIRS.frames(Header(Kind.ADD)))
    sockets.client.send_multipart(OURS.frames(Header(Kind.CHALLENGE)))
    while sockets.refused.total() < 3:
        sockets.serve()
    assert sockets.refused == {"garbage": 1, "key": 1, "kind": 1}
    assert not sockets.client.poll(0)


def test_a_message_to_a_client_that_is_gone_is_dropped(sockets: Sockets) -> None:
    sockets.server.send(b"nobody", Header(Kind.ADD))
