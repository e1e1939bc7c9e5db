"""Attacks on a data server by a trainer that has the key and breaks every rule."""

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq
from hypothesis import strategies as st

from phalanx.config.resolve import parse_override, resolve
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.batch_workers import BatchWorkers, FinishedBatch
from phalanx.data.service.journal import Journal
from phalanx.data.service.server import Server
from phalanx.data.service.terms import Terms, terms_of
from phalanx.data.service.wire import WIRE, DataMessageKind, Header
from phalanx.net.control import as_json
from phalanx.net.server_channel import ServerChannel
from tests.data.service.servers import pipeline_of
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import EDGES, damaged, wrong

KEY = "the servers' secret"


@functools.cache
def served() -> tuple[Pipeline, Terms]:
    config = resolve([parse_override("data.source=digits")]).config
    pipeline = pipeline_of(config)
    return pipeline, terms_of(config, pipeline, "the data server")


class Trainer:
    """A connection that has the key, and a server at its other end."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        options = {zmq.ROUTER_MANDATORY: 1}
        channel = ServerChannel(context, address, KEY, "the server", harm="read the data", options=options)
        self._router, self._dealer = channel.socket, context.socket(zmq.DEALER)
        self._dealer.connect(address)
        self._done: list[FinishedBatch] = []
        self._workers = BatchWorkers(served()[0], None, self._done.append)
        self._server = Server(channel, self._workers, served()[1], Journal(None, lambda text: None))

    def send(self, header: Header, control: bytes = b"", body: bytes | None = None) -> None:
        self._dealer.send_multipart(WIRE.frames(header, control, body))
        assert self._router.poll(10_000)
        with guarded():
            self._server.handle(self._router.recv_multipart(copy=False))

    def join(self, terms: Any, area: Any, slot_bytes: Any) -> None:
        sent = {"terms": terms, "area": area, "slot_bytes": slot_bytes, "name": "n" * 500}
        self.send(Header(DataMessageKind.JOIN, session=5), as_json(sent))

    def close(self) -> None:
        self._workers.close()
        with guarded():
            for done in self._done:
                self._server.finish(done)
            self._server.tick()
            self._server.close()


@contextmanager
def trainer() -> Iterator[Trainer]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory() as folder:
        try:
            one = Trainer(context, f"ipc://{folder}/s")
            yield one
            one.close()
        finally:
            context.destroy(linger=0)


AREA = {"pid": 1, "descriptor": 0, "size": 64, "token": "00"}


@fuzz(examples=15, data=st.data(), area=st.none() | wrong(AREA), slot_bytes=st.sampled_from([*EDGES, -1, 1e999, "x"]))
def test_a_trainer_that_joins_with_nonsense(data: st.DataObject, area: Any, slot_bytes: Any) -> None:
    with trainer() as one:
        one.join(data.draw(wrong(served()[1])), area, slot_bytes)
        one.send(Header(DataMessageKind.LEASE, 5, 1, 0), LEASE)


LEASE = bytes(8) + b"\1\0\0\0" + b"\0\0\0\0\2\0\0\0" + bytes(8) + b"\1" + bytes(7)
KINDS = st.sampled_from([kind for kind in DataMessageKind if kind is not DataMessageKind.JOIN])
HEADERS = st.builds(
    Header,
    kind=st.just(DataMessageKind.LEASE) | KINDS,
    slot=st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31)]),
    session=st.sampled_from([5, 5, 5, 6]),
    number=st.sampled_from(EDGES),
)


@fuzz(examples=15, messages=st.lists(st.tuples(HEADERS, damaged([LEASE])), min_size=1, max_size=6))
def test_a_trainer_that_breaks_all_rules(messages: list[tuple[Header, bytes]]) -> None:
    with trainer() as one:
        one.join(served()[1], None, 64)
        for header, control in messages:
            one.send(header, control)
