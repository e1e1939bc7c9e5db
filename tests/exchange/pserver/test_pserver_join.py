"""Joining again: a request to join that was lost, or whose reply was, is sent again and changes nothing."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import zmq

from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.pserver.job import describe
from phalanx.exchange.pserver.link import Link
from phalanx.exchange.pserver.wire import WIRE, MessageKind
from phalanx.models.params import no_decay_names
from phalanx.net.code import CodeReport
from phalanx.net.control import as_json, from_json
from phalanx.net.server_channel import ServerChannel
from tests.exchange.pserver.pserver_jobs import KEY, SCHEDULE, SGD, JobOfProcesses, model, optim
from tests.waiting import until


@pytest.mark.parametrize("job", [(1, 1, "tcp")], indirect=True)
def test_a_request_to_join_may_come_twice(job: JobOfProcesses) -> None:
    """In sync mode a second process in a worker's place would end the job."""
    role, net = job.role("trainer", 0), model()
    config = ExchangeConfig(method="pserver")
    described = describe(dict(net.named_parameters()), no_decay_names(net), optim(*SGD), SCHEDULE, config, role)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = Link(context, 0, role.servers[0], KEY, 0, 20.0)
    try:
        sent = {"job": described.described(), "area": None}
        joining = as_json({**sent, "code": CodeReport.of("trainer-0").to_data()})
        header = link.header(MessageKind.JOIN)
        welcomes = [link.request(header, joining) for _ in range(3)]
        assert {one.header.kind for one in welcomes} == {MessageKind.WELCOME}
        assert len({bytes(one.control) for one in welcomes}) == 1
        assert from_json(welcomes[0].control)["rejoined"] is False
        link.request(link.header(MessageKind.GOODBYE))
    finally:
        link.close()
        context.term()
    job.join()
    events = [line["kind"] for line in job.log(0)]
    assert events.count("join") == events.count("goodbye") == 1
    assert not job.log(0)[-1]["refused"]


@pytest.fixture
def context() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def test_a_request_to_join_that_is_lost_with_its_lane_is_sent_again(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    """The description of a job of many slices is large, so it goes over the lane."""
    channel = ServerChannel(context, "tcp://127.0.0.1:*", KEY, "a server", harm="read")
    link = Link(context, 0, channel.address, KEY, 0, timeout_s=60.0)
    link.resend_s = 0.2
    welcomed = threading.Event()

    def join() -> None:
        link.request(link.header(MessageKind.JOIN), bytes(100_000))
        welcomed.set()

    thread = threading.Thread(target=join)
    thread.start()
    seen = []

    def serve() -> bool:
        channel.socket.poll(20)
        with suppress(zmq.Again):
            identity, *frames = channel.recv_multipart()
            message, sender = WIRE.unpack(frames), bytes(identity.buffer)
            seen.append(message.header.sequence)
            assert channel._lanes is not None
            lane = channel._lanes._lanes.get(sender)
            if len(seen) == 1:  # it is lost, and so is its lane
                assert lane is not None
                channel._lanes._loop.call(lane.close)
            else:
                channel.send_multipart([sender, *WIRE.frames(message.header.reply(MessageKind.WELCOME))])
        return welcomed.is_set()

    until(serve)
    thread.join()
    assert len(seen) > 1
    assert len(set(seen)) == 1, "the very same request"
    link.close()
    channel.close(0.0)
