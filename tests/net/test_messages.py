"""Messages arrive as they were sent, or are refused."""

from dataclasses import dataclass, replace
from enum import IntEnum

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.control import Refused, from_json
from phalanx.net.messages import BaseHeader, Buffer, Wire, pack_error, unpack_error


class Kind(IntEnum):
    ADD = 1
    ADDED = 32
    FAILED = 33


@dataclass(frozen=True, slots=True)
class Header(BaseHeader):
    kind: Kind
    large: int = 0
    signed: int = 0
    real: float = 0.0


class OtherError(UserError):
    pass


WIRE = Wire(b"TEST", 3, Header, Kind, "Qqd", Kind.FAILED)
ELSE = replace(WIRE, magic=b"ELSE")
HEADER = Header(Kind.ADD, 2**64 - 1, -5, 0.125)


def received(frames: list[Buffer]) -> list[zmq.Frame]:
    return [zmq.Frame(frame) for frame in frames]


def test_header_control_and_body_arrive_as_they_were_sent() -> None:
    message = WIRE.unpack(received(WIRE.frames(HEADER, b"control", b"0123456789")))
    assert message.header == replace(HEADER, length=10)
    assert (bytes(message.control), bytes(message.body)) == (b"control", b"0123456789")
    assert message.header.reply(Kind.ADDED) == replace(HEADER, kind=Kind.ADDED)
    assert WIRE.unpack(received(WIRE.frames(HEADER))).body is None


@pytest.mark.parametrize(
    ("reason", "frames"),
    [
        ("garbage", [b"garbage", b""]),
        ("garbage", WIRE.frames(HEADER)[:1]),
        ("version", replace(WIRE, version=4).frames(HEADER)),
        ("garbage", ELSE.frames(HEADER)),
        ("garbage", [bytes(WIRE.frames(HEADER)[0])[:-1], b""]),
        ("garbage", [b"TEST", b""]),
        ("length", [*WIRE.frames(replace(HEADER, length=6)), b"short"]),
        ("kind", WIRE.frames(Header(99))),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message_of_ours_is_refused(reason: str, frames: list[Buffer]) -> None:
    with pytest.raises(Refused, match=reason):
        WIRE.unpack(received(frames))


def test_an_error_is_raised_as_what_it_was_where_its_type_is_known() -> None:
    packed = pack_error(OtherError("what", why="why", remedy="remedy"))
    assert type(unpack_error(packed, OtherError)) is OtherError
    assert type(unpack_error(packed)) is UserError
    assert str(unpack_error(packed)) == "what\n  why: why\n  try: remedy"


def test_control_data_is_a_json_object() -> None:
    with pytest.raises(Refused, match="garbage"):
        from_json(b"[1]")
