"""Messages without the key, of another version, or damaged are refused and counted, and serving goes on."""

import socket
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from phalanx.data.order import Work
from phalanx.data.service.body import pack_lease
from phalanx.data.service.terms import Terms, terms_of
from phalanx.data.service.wire import WIRE, DataMessageKind, Header
from phalanx.errors import UserError
from phalanx.net import shared_memory as memory
from phalanx.net.control import as_json
from phalanx.net.curve import secure_client
from tests.data.service.servers import KEY, Servers, Task, content, pipeline_of, server, taken

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00NULL" + bytes(48)
READY = b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"


def test_strangers_are_refused_and_counted_and_serving_goes_on(servers: Servers) -> None:
    servers.start(0, "tcp://127.0.0.1:*", pause_s=0.05)
    address = servers.bound(0)
    local = pipeline_of(servers.config)
    intruded = False

    def intrude() -> None:
        nonlocal intruded
        if not intruded:
            intruded = True
            _speak_otherwise(address)
            _speak_without_right(address)
            _break_rules(address, terms_of(servers.config, local, "trainer-0"))

    service = servers.service(addresses=(address,))
    assert content(taken(pipeline_of(servers.config, remote=service), 6, intrude)) == content(taken(local, 6))
    assert servers.end(0)["refused"] == {
        **{"connection": 2, "garbage": 4, "version": 1, "kind": 1},
        **{"length": 2, "samples": 1, "slot": 1},
    }


def _speak_otherwise(address: str) -> None:
    """Connections that the server ends."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
    # Speaks zmq, and announces a frame of 2^62 bytes. The server ends the connection at the greeting.
    with suppress(ConnectionError), socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(GREETING + READY + b"\x02" + struct.pack(">Q", 1 << 62) + b"x" * 1000)
        while raw.recv(1000):
            pass


def _speak_without_right(address: str) -> None:
    stranger = _dealer(address)
    lease = Header(DataMessageKind.LEASE, session=5, number=1)
    head = bytes(WIRE.frames(lease)[0])
    stranger.send(b"garbage")
    stranger.send_multipart([b"far", b"too", b"many", b"frames"])
    stranger.send_multipart([head[:4] + b"\x63" + head[5:], b""])  # version 99
    stranger.send_multipart([head + b"more", b""])
    stranger.send_multipart(WIRE.frames(Header(DataMessageKind.WELCOME)))
    stranger.send_multipart(WIRE.frames(lease))  # the right key, but it never joined
    assert stranger.recv_multipart()[0][5] == DataMessageKind.UNKNOWN
    stranger.close(linger=1000)


def _break_rules(address: str, terms: Terms) -> None:
    """A client with the key that joins, and then sends leases that cannot be used."""
    trainer = _dealer(address)
    area = memory.create(memory.TOKEN_BYTES + 2 * 1000)

    def join(**fields: Any) -> None:
        trainer.send_multipart(WIRE.frames(Header(DataMessageKind.JOIN, session=7), as_json(fields)))

    join(terms=terms, name="broken")  # garbage: nothing about memory
    join(terms=terms, name="broken", area=area.address, slot_bytes=1000)
    assert trainer.recv_multipart()[0][5] == DataMessageKind.WELCOME
    lease = Header(DataMessageKind.LEASE, slot=0, session=7, number=1)
    control = pack_lease(Work(0, 0, ((0, np.array([1, 2, 3])),), 3, last=False))
    trainer.send_multipart(WIRE.frames(lease, control[:-1]))
    trainer.send_multipart(WIRE.frames(lease, pack_lease(Work(0, 0, ((0, np.array([10**6])),), 1, last=False))))
    trainer.send_multipart(WIRE.frames(replace(lease, slot=2), control))
    trainer.send_multipart([*WIRE.frames(replace(lease, length=1 << 60), control), b"short"])
    trainer.send_multipart(WIRE.frames(lease, control))  # right at last, but larger than its slot: so it travels
    frames = trainer.recv_multipart()
    assert frames[0][5] == DataMessageKind.BATCH
    assert len(frames[2]) == 3 * 24 * 24 * 3
    area.close()
    trainer.close(linger=1000)


def _dealer(address: str) -> "zmq.Socket[bytes]":
    dealer: zmq.Socket[bytes] = zmq.Context().socket(zmq.DEALER)
    dealer.setsockopt(zmq.RCVTIMEO, 20_000)
    secure_client(dealer, address, KEY)
    dealer.connect(address)
    return dealer


def test_nobody_listens_beyond_this_machine_without_a_key(servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no key") as error:
        server(Task(servers.config, "tcp://0.0.0.0:0", tmp_path / "log", key=""))
    assert "read the training data" in error.value.why
