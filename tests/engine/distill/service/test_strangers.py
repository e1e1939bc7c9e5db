"""Messages without the key, of another version, or damaged are refused and counted, and teachers go on."""

import socket
import struct
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
import zmq

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.engine.distill.service.body import SentView, pack_view
from phalanx.engine.distill.service.terms import Terms
from phalanx.engine.distill.service.wire import WIRE, Header, TeacherMessageKind
from phalanx.errors import UserError
from phalanx.net.control import as_json
from phalanx.net.curve import secure_client
from phalanx.roles.teacher import serve_role
from tests.engine.distill.service.teachers import KEY, Student, TeacherProcesses, student_of

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00NULL" + bytes(48)


def test_strangers_are_refused_and_counted_and_teachers_go_on(processes: TeacherProcesses) -> None:
    address = processes.start(0, "tcp://127.0.0.1:*")
    student = student_of(processes.teacher)
    with closing(student.served(address)) as served:
        served.logits(student.view(0))
        _speak_otherwise(address)
        _speak_without_right(address)
        _break_rules(address, student)
        assert torch.equal(served.logits(student.view(1)), student.local.logits(student.view(1)))
    assert processes.end(0)["refused"] == {
        **{"connection": 2, "garbage": 8, "version": 1, "kind": 1, "length": 6, "samples": 1}
    }


def _speak_otherwise(address: str) -> None:
    """Connections that the process ends."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
    # Speaks zmq, and announces a frame of 2^62 bytes. The process ends the connection at the greeting.
    with suppress(ConnectionError), socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(GREETING + b"\x02" + struct.pack(">Q", 1 << 62) + b"x" * 1000)
        while raw.recv(1000):
            pass


def _speak_without_right(address: str) -> None:
    stranger = _dealer(address)
    view = Header(TeacherMessageKind.VIEW, 5, 1)
    head = bytes(WIRE.frames(view)[0])
    stranger.send(b"garbage")
    stranger.send_multipart([b"far", b"too", b"many", b"frames"])
    stranger.send_multipart([head[:4] + b"\x63" + head[5:], b""])  # version 99
    stranger.send_multipart([head + b"more", b""])
    stranger.send_multipart(WIRE.frames(Header(TeacherMessageKind.WELCOME)))
    stranger.send_multipart(WIRE.frames(view))  # the right key, but it never joined
    assert stranger.recv_multipart()[0][5] == TeacherMessageKind.UNKNOWN
    stranger.send_multipart(WIRE.frames(Header(TeacherMessageKind.PING, 5)))  # as one whose request to join was lost
    assert stranger.recv_multipart()[0][5] == TeacherMessageKind.UNKNOWN
    stranger.close(linger=1000)


def _break_rules(address: str, student: Student) -> None:
    """A client with the key that joins, and then sends views that cannot be used."""
    trainer = _dealer(address)

    def join(terms: Terms) -> None:
        trainer.send_multipart(WIRE.frames(Header(TeacherMessageKind.JOIN, 7), as_json(terms)))

    right: dict[str, Any] = {**student.terms, "name": "broken"}
    join({"name": "nothing else"})
    join(right | {"machine": right["machine"] | {"threads": 1 << 40}})
    join(right | {"views": right["views"] | {"augment": {"os.system": 1}}})
    join(right | {"student": {"classes": 5}})
    join(right)
    assert trainer.recv_multipart()[0][5] == TeacherMessageKind.WELCOME
    header, view = Header(TeacherMessageKind.VIEW, 7, 1), student.view(3)
    control, body = pack_view(SentView(view.micro, view.epoch, view.start, view.step))
    trainer.send_multipart(WIRE.frames(header, control[:-1], body))
    trainer.send_multipart(WIRE.frames(header, control, bytes(body)[:-1]))
    trainer.send_multipart(WIRE.frames(header, control))
    trainer.send_multipart(WIRE.frames(header, b"", body))
    trainer.send_multipart([*WIRE.frames(replace(header, length=1 << 60), control), b"short"])
    huge = control[:24] + struct.pack("<IIHHH", 0, 2**32 - 1, 2**16 - 1, 2**16 - 1, 2**16 - 1)
    trainer.send_multipart(WIRE.frames(header, huge, body))
    negative = control[:-8] + struct.pack("<q", -1)
    trainer.send_multipart(WIRE.frames(header, negative, body))
    trainer.send_multipart(WIRE.frames(header, struct.pack("<Q", 1 << 63) + control[8:], body))
    trainer.send_multipart(WIRE.frames(header, control, body))  # right at last
    frames = trainer.recv_multipart()
    assert frames[0][5] == TeacherMessageKind.LOGITS
    trainer.close(linger=1000)


def _dealer(address: str) -> "zmq.Socket[bytes]":
    dealer: zmq.Socket[bytes] = zmq.Context().socket(zmq.DEALER)
    dealer.setsockopt(zmq.RCVTIMEO, 20_000)
    secure_client(dealer, address, KEY)
    dealer.connect(address)
    return dealer


def test_nobody_listens_beyond_this_machine_without_a_key() -> None:
    role = Role("teacher", teachers=("tcp://0.0.0.0:0",))
    with pytest.raises(UserError, match="has no key") as error:
        serve_role(role, RunConfig())
    assert "use the teachers" in error.value.why
