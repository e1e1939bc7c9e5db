"""A request to join a teacher is made again if it was lost: the teacher then does not know who sends a ping."""

from contextlib import closing, suppress

import zmq

from phalanx.engine.distill.service.link import Link
from phalanx.engine.distill.service.wire import WIRE, TeacherMessageKind
from phalanx.net.server_channel import ServerChannel
from tests.waiting import until

KINDS = TeacherMessageKind


def test_a_lost_request_to_join_is_made_again() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    kinds, sessions = [], []
    channel = ServerChannel(context, "tcp://127.0.0.1:*", "secret", "a teacher", harm="use it")
    link = Link(context, channel.address, "secret", {"name": "trainer-0"}, lambda note: None)

    def joined() -> bool:
        link.attend(0.6, 60.0)
        channel.socket.poll(20)
        with suppress(zmq.Again):
            identity, *frames = channel.recv_multipart()
            header = WIRE.unpack(frames).header
            kinds.append(header.kind)
            if header.kind is KINDS.JOIN:
                sessions.append(header.session)
            known = len(sessions) > 1  # the first is lost
            reply = KINDS.WELCOME if header.kind is KINDS.JOIN and known else KINDS.PONG if known else KINDS.UNKNOWN
            if header.kind is KINDS.PING or known:
                channel.send_multipart([bytes(identity.buffer), *WIRE.frames(header.reply(reply))])
        assert not list(link.receive())
        return link.joined

    with closing(link):
        until(joined)
        assert kinds[0] is KINDS.JOIN
        assert KINDS.PING in kinds
        assert len(sessions) == 2
        assert len(set(sessions)) == 2
    channel.close(0.0)
    context.destroy(linger=0)
