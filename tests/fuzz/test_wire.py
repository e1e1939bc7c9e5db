"""Attacks on messages of all protocols: any bytes, and well-formed messages of a member that breaks every rule."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import zmq
from hypothesis import example
from hypothesis import strategies as st

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig, OptimConfig
from phalanx.data.service import wire as data_wire
from phalanx.data.service.body import unpack_batch, unpack_lease
from phalanx.engine.distill.service import wire as teacher_wire
from phalanx.exchange.pserver.job import describe
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.presence import Presence
from phalanx.exchange.pserver.server import Server
from phalanx.exchange.pserver.wire import WIRE, Header, MessageKind
from phalanx.net.code import CodeReport
from phalanx.net.control import Refused, as_json
from phalanx.net.messages import unpack_error
from phalanx.net.server_channel import ServerChannel
from phalanx.optim.schedule import Schedule
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import EDGES, damaged, wrong

CODE = CodeReport.of("trainer-0").to_data()
KEY = "the job's secret"
HEADS: dict[str, tuple[Any, Any]] = {
    "pserver": (WIRE, Header(MessageKind.PUSH)),
    "data": (data_wire.WIRE, data_wire.Header(data_wire.DataMessageKind.LEASE)),
    "teacher": (teacher_wire.WIRE, teacher_wire.Header(teacher_wire.TeacherMessageKind.VIEW)),
}


@pytest.mark.parametrize("name", HEADS)
@fuzz(examples=40, data=st.data())
def test_any_frames(name: str, data: st.DataObject) -> None:
    wire, header = HEADS[name]
    frames = data.draw(st.lists(damaged([bytes(wire.frames(header)[0])]) | st.binary(max_size=200), max_size=4))
    with guarded(Refused):
        wire.unpack([zmq.Frame(frame) for frame in frames])


@fuzz(
    examples=60, control=damaged([b"\0" * 8 + b"\1\0\0\0" + b"\0\0\0\0\2\0\0\0" + bytes(16)]) | st.binary(max_size=90)
)
def test_leases(control: bytes) -> None:
    with guarded(Refused):
        unpack_lease(memoryview(control), 100)


BATCH = b"\1\0\0\0\2\0\2\0\1\0\0\0\0\0\0\0" + b"\0\0\0\0\1\0\0\0" + bytes(16)


@fuzz(examples=60, control=damaged([BATCH, BATCH + b'[[1, "bad"]]']), pixels=st.integers(0, 8))
@example(control=BATCH + b"[" * 100_000, pixels=4)
@example(control=BATCH + b"[[1e999, 1]]", pixels=4)
def test_batches(control: bytes, pixels: int) -> None:
    with guarded(Refused):
        unpack_batch(memoryview(control), torch.zeros(pixels, dtype=torch.uint8))


@fuzz(examples=30, value=wrong({"type": "UserError", "what": "x", "why": "y", "remedy": "z"}))
def test_errors_of_others(value: Any) -> None:
    with guarded(Refused):
        unpack_error(json.dumps(value).encode())


# A parameter server, and a worker with the key


class Worker:
    """A connection that has the key, and a server at its other end."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        options = {zmq.ROUTER_MANDATORY: 1}
        channel = ServerChannel(context, address, KEY, "the server", harm="change the model", options=options)
        self._router, self._dealer = channel.socket, context.socket(zmq.DEALER)
        self._dealer.connect(address)
        self.server = Server(channel, 0, Journal(None), Presence(self._router, KEY, 30.0, 1.0))

    def send(self, header: Header, control: bytes = b"", body: bytes | None = None) -> None:
        self._dealer.send_multipart(WIRE.frames(header, control, body))
        assert self._router.poll(10_000)
        with guarded():
            self.server.handle(self._router.recv_multipart(copy=False))

    def replies(self) -> list[Any]:
        found = []
        while self._dealer.poll(20):
            found.append(WIRE.unpack(self._dealer.recv_multipart(copy=False)))
        return found


@contextmanager
def worker() -> Iterator[Worker]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Worker(context, f"ipc://{folder}/s")
        finally:
            context.destroy(linger=0)


def described() -> dict[str, Any]:
    role = Role(servers=("ipc:///s",), world=1)
    params = {"w": torch.zeros(8, 9), "b": torch.zeros(8)}
    schedule = Schedule("cosine", 0.1, 60, 7, "linear", 0.0, (), 0.1, 2.0, 0.0)
    return describe(params, ["b"], OptimConfig(), schedule, ExchangeConfig(), role).described()


JOB = described()
SPAN = 4 * JOB["slices"][0]["span"]
NUMBERS = st.sampled_from([0, 1, 2, *EDGES])


def headers(kinds: list[MessageKind]) -> st.SearchStrategy[Header]:
    return st.builds(
        Header,
        kind=st.sampled_from(kinds),
        worker=st.sampled_from([0, 0, 0, 1, 2**32 - 1]),
        incarnation=st.just(5),
        sequence=NUMBERS,
        step=st.sampled_from([-1, 0, 1, 2**62, 2**63 - 1, -(2**63)]),
        slice=st.sampled_from([0, 0, 0, 1, 2**32 - 1]),
        staleness=st.just(0),
        present=st.sampled_from([0, 1, 3, 2**64 - 1]),
        version=NUMBERS,
        rate=st.sampled_from([0.0, float("nan"), 1e308]),
        length=st.sampled_from([0, 1, SPAN, 2**63]),
    )


BODIES = st.sampled_from(
    [None, b"", b"x", bytes(8), b"\xff" * 16, bytes(SPAN), b"\xff" * SPAN, b'{"a": 1}', bytes(1000)]
)
STRANGERS = [MessageKind.HELLO, MessageKind.JOIN, MessageKind.GATHER, MessageKind.LOST]
TEXT = {"topic": "t", "text": "x", "world": 1}


@fuzz(examples=20, job=wrong(JOB), area=wrong({"pid": 1, "descriptor": 0, "size": 64, "token": "00"}), world=NUMBERS)
@example(job={**JOB, "world": 10**9}, area=None, world=1)
@example(job={**JOB, "slices": [{**JOB["slices"][0], "span": 1 << 50}]}, area=None, world=1)
@example(job={**JOB, "layouts": {"w": [[1 << 40], [1]], "b": [[8], [1]]}}, area=None, world=1)
@example(job={**JOB, "compress": "topk:9"}, area=None, world=1)
@example(job={**JOB, "mode": "ssp:x"}, area=None, world=1)
def test_a_worker_that_joins_with_nonsense(job: Any, area: Any, world: int) -> None:
    with worker() as one:
        text = as_json({**TEXT, "world": world})
        one.send(Header(MessageKind.GATHER, 0, 5), text)
        one.replies()
        one.send(Header(MessageKind.JOIN, 0, 5), b'{"job": ' + b"[" * 50_000)
        one.send(Header(MessageKind.JOIN, 0, 5), as_json({"job": job, "area": area, "code": CODE}))
        one.send(Header(MessageKind.PUSH, 0, 5, 1, 0, present=1), b"", bytes(SPAN))
        with guarded():
            one.server.tick()


MEMBERS = [kind for kind in MessageKind if kind < 32 and kind not in STRANGERS]


@fuzz(
    examples=25,
    mode=st.sampled_from(["sync", "async", "ssp:1"]),
    compress=st.sampled_from(["none", "none", "2bit", "1bit", "topk:0.5", "fp16"]),
    messages=st.lists(st.tuples(headers(MEMBERS), BODIES), min_size=1, max_size=8),
    optim=st.sampled_from(["sgd", "adamw"]),
)
def test_a_member_that_breaks_all_rules(
    mode: str, compress: str, messages: list[tuple[Header, bytes | None]], optim: str
) -> None:
    with worker() as one:
        job = {**JOB, "mode": mode, "compress": compress, "optim": {**JOB["optim"], "name": optim}}
        one.send(Header(MessageKind.JOIN, 0, 5), as_json({"job": job, "area": None, "code": CODE}))
        assert one.replies()[-1].header.kind is MessageKind.WELCOME
        one.send(Header(MessageKind.VALUES, 0, 5), b"", bytes(SPAN))
        for header, body in messages:
            one.send(header, b"", body)
        with guarded():
            one.server.tick()


def _states() -> list[bytes]:
    """A valid state of an optimizer, as a server packs it."""
    with worker() as one:
        job = {**JOB, "optim": {**JOB["optim"], "name": "adamw"}}
        one.send(Header(MessageKind.JOIN, 0, 5), as_json({"job": job, "area": None, "code": CODE}))
        one.send(Header(MessageKind.VALUES, 0, 5), b"", bytes(SPAN))
        one.send(Header(MessageKind.PUSH, 0, 5, 1, 0, present=3), b"", bytes(SPAN))
        one.send(Header(MessageKind.STATE, 0, 5))
        return [bytes(one.replies()[-1].body)]


@fuzz(examples=25, data=st.data())
def test_a_state_to_load(data: st.DataObject) -> None:
    body = data.draw(damaged(_seeds()))
    with worker() as one:
        job = {**JOB, "optim": {**JOB["optim"], "name": "adamw"}}
        one.send(Header(MessageKind.JOIN, 0, 5), as_json({"job": job, "area": None, "code": CODE}))
        one.send(Header(MessageKind.VALUES, 0, 5), b"", bytes(SPAN))
        one.send(Header(MessageKind.LOAD, 0, 5), b"", body)
        one.send(Header(MessageKind.PUSH, 0, 5, 1, 0, present=3), b"", bytes(SPAN))
        one.send(Header(MessageKind.STATE, 0, 5))


_SEEDS: list[bytes] = []


def _seeds() -> list[bytes]:
    if not _SEEDS:
        _SEEDS.extend(_states())
    return _SEEDS
