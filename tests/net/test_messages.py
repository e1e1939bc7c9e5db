"""Messages arrive as they were sent, or are refused."""

from dataclasses import dataclass, replace
from enum import IntEnum

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.messages import BaseHeader, Buffer, Seal, Wire, pack_error, unpack_error
from phalanx.net.seal import Refused, from_json


class Kind(IntEnum):
    HELLO = 1
    ADD = 2
    CHALLENGE = 32
    FAILED = 33


@dataclass(frozen=True, slots=True)
class Header(BaseHeader):
    kind: Kind
    large: int = 0
    signed: int = 0
    real: float = 0.0


class OtherError(UserError):
    pass


WIRE = Wire(b"TEST", 3, Header, Kind, "Qqd", Kind.HELLO, Kind.CHALLENGE, Kind.FAILED)
OURS, THEIRS = Seal("ours", WIRE), Seal("theirs", WIRE)
HEADER = Header(Kind.ADD, 2**64 - 1, -5, 0.125)


def received(frames: list[Buffer]) -> list[zmq.Frame]:
    return [zmq.Frame(frame) for frame in frames]


def test_header_control_and_body_arrive_as_they_were_sent() -> None:
    message = OURS.unpack(received(OURS.frames(HEADER, b"control", b"0123456789")))
    assert message.header == replace(HEADER, length=10)
    assert (bytes(message.control), bytes(message.body)) == (b"control", b"0123456789")
    assert message.header.reply(Kind.CHALLENGE) == replace(HEADER, kind=Kind.CHALLENGE)
    assert OURS.unpack(received(OURS.frames(HEADER))).body is None


@pytest.mark.parametrize(
    ("reason", "frames"),
    [
        ("garbage", [b"garbage", b""]),
        ("garbage", OURS.frames(HEADER)[:1]),
        ("version", Seal("ours", replace(WIRE, version=4)).frames(HEADER)),
        ("garbage", Seal("ours", replace(WIRE, magic=b"ELSE")).frames(HEADER)),
        ("key", THEIRS.frames(HEADER)),
        ("key", [OURS.frames(HEADER, b"control")[0], b"changed"]),
        ("length", [*OURS.frames(replace(HEADER, length=6)), b"short"]),
        ("kind", OURS.frames(Header(99))),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message_of_ours_is_refused(reason: str, frames: list[Buffer]) -> None:
    with pytest.raises(Refused, match=reason):
        OURS.unpack(received(frames))


def test_an_error_is_raised_as_what_it_was_where_its_type_is_known() -> None:
    packed = pack_error(OtherError("what", why="why", remedy="remedy"))
    assert type(unpack_error(packed, OtherError)) is OtherError
    assert type(unpack_error(packed)) is UserError
    assert str(unpack_error(packed)) == "what\n  why: why\n  try: remedy"


def test_control_data_is_a_json_object() -> None:
    with pytest.raises(Refused, match="garbage"):
        from_json(b"[1]")
