"""A request to join a data server is repeated until there is a reply: a message may be lost with its connection."""

from contextlib import closing, suppress

import zmq

from phalanx.data.service.link import Link
from phalanx.data.service.wire import WIRE, DataMessageKind
from phalanx.net.control import as_json
from phalanx.net.server_channel import ServerChannel
from tests.waiting import until


def test_a_lost_request_to_join_is_repeated_as_it_was() -> None:
    """Otherwise a server that needs longer than a second for its replies would never be joined."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    notes: list[str] = []
    sessions = []
    channel = ServerChannel(context, "tcp://127.0.0.1:*", "secret", "a server", harm="read")
    link = Link(context, channel.address, "secret", {}, "trainer-0", 1, 64, notes.append)

    def joined() -> bool:
        link.attend(0.0, 60.0)
        channel.socket.poll(20)
        with suppress(zmq.Again):
            identity, *frames = channel.recv_multipart()
            message = WIRE.unpack(frames)
            assert message.header.kind is DataMessageKind.JOIN
            sessions.append(message.header.session)
            if len(sessions) > 1:  # the first is lost; the reply to the second comes twice
                welcome = WIRE.frames(message.header.reply(DataMessageKind.WELCOME), as_json({"shared": False}))
                for _ in range(2):
                    channel.send_multipart([bytes(identity.buffer), *welcome])
        assert not list(link.receive())
        return link.joined

    with closing(link):
        until(joined)
        assert len(set(sessions)) == 1
        assert len(notes) == 1
    channel.close(0.0)
    context.destroy(linger=0)
