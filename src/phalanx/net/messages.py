"""Messages between workers and servers: a fixed header, control data, and a body of raw bytes.

A message is two or three frames: the header, the control data (JSON or a small structure, perhaps empty), and perhaps a
body. Nothing is ever pickled. Who sent it, and that nobody changed or repeated it, is proven by what carries it: CURVE
and lanes, or a socket that only this user reaches (`net/curve.py`). Here is checked that it is of this protocol.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

from phalanx.errors import UserError
from phalanx.net.control import Refused, as_json, from_json

Buffer = memoryview | bytes


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """What the header of every protocol has."""

    kind: Any  # one of the protocol's kinds of messages
    length: int = field(default=0, kw_only=True)  # of the body, which follows or lies in shared memory

    def reply(self, kind: Any) -> Self:
        """The header of a reply to this message."""
        return replace(self, kind=kind, length=0)


@dataclass(frozen=True, slots=True)
class SessionHeader(BaseHeader):
    """The header of protocols whose clients join a server, and number what they ask for."""

    session: int = 0  # random, new each time that a client joins
    number: int = 0  # of the request; one that is asked for again keeps it


H = TypeVar("H", bound=BaseHeader)


@dataclass(frozen=True, slots=True)
class Message(Generic[H]):
    """A message as it arrived."""

    header: H
    control: Any = b""  # a buffer
    body: Any = None  # a buffer


@dataclass(frozen=True)
class Wire(Generic[H]):
    """A protocol: its header as bytes, and the kinds that every protocol has."""

    magic: bytes  # four bytes that begin every message
    version: int
    header: type[H]
    kinds: type[IntEnum]
    own_fields: str  # a struct's letters for the header's fields, without those of BaseHeader
    failed: IntEnum  # the reply to a request that cannot be done, with the reason

    @cached_property
    def _layout(self) -> struct.Struct:
        return struct.Struct(f"<4sBBxx{self.own_fields}Q")

    @cached_property
    def _values(self) -> Any:
        shared = {each.name for each in fields(BaseHeader)}
        return attrgetter("kind", *[each.name for each in fields(self.header) if each.name not in shared], "length")

    def frames(self, header: H, control: bytes = b"", body: Buffer | None = None) -> list[Buffer]:
        """A message as the frames to send."""
        if body is not None:
            header = replace(header, length=len(body))
        head = self._layout.pack(self.magic, self.version, *self._values(header))
        return [head, control] if body is None else [head, control, body]

    def unpack(self, frames: Sequence[Any]) -> Message[H]:
        """The message that some zmq frames are; refuses what is not one."""
        if len(frames) not in (2, 3):
            raise Refused("garbage")
        head, control = frames[0].buffer, frames[1].buffer
        if bytes(head[:4]) != self.magic or len(head) < 5:
            raise Refused("garbage")
        if head[4] != self.version:
            raise Refused("version")
        if len(head) != self._layout.size:
            raise Refused("garbage")
        _, _, number, *own, length = self._layout.unpack(head)
        try:
            header = self.header(self.kinds(number), *own, length=length)
        except ValueError as error:
            raise Refused("kind") from error
        if len(frames) == 2:
            return Message(header, control)
        body = frames[2].buffer
        if len(body) != length:
            raise Refused("length")
        return Message(header, control, body)


def pack_error(error: UserError) -> bytes:
    """An error as control data, for another process to raise."""
    fields_ = {"type": type(error).__name__, "what": error.what, "why": error.why, "remedy": error.remedy}
    return as_json({**fields_, "lost": error.lost})


def unpack_error(control: Buffer, *types: type[UserError]) -> UserError:
    """The error that another process reports: one of `types` where it was one there, a plain UserError otherwise."""
    sent = from_json(control)
    found = next((each for each in types if each.__name__ == sent.get("type")), UserError)
    error = found(str(sent.get("what")), why=str(sent.get("why")), remedy=str(sent.get("remedy")))
    error.lost = str(sent.get("lost", ""))
    return error
