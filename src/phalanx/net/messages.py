"""Messages between workers and servers: a fixed header, control data that the key proves, and a body of raw bytes.

A message is two or three frames: the header with its proof, the control data (JSON or a small structure, perhaps
empty), and perhaps a body. Nothing is ever pickled.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

from phalanx.errors import UserError
from phalanx.net.seal import Prover, Refused, as_json, from_json

Buffer = memoryview | bytes


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """What the header of every protocol has."""

    kind: Any  # one of the protocol's kinds of messages
    length: int = field(default=0, kw_only=True)  # of the body, which follows or lies in shared memory

    def reply(self, kind: Any) -> Self:
        """The header of a reply to this message."""
        return replace(self, kind=kind, length=0)


H = TypeVar("H", bound=BaseHeader)


@dataclass(frozen=True)
class Wire(Generic[H]):
    """A protocol: its header as bytes, and the kinds that every protocol has."""

    magic: bytes  # four bytes that begin every message
    version: int
    header: type[H]
    kinds: type[IntEnum]
    own_fields: str  # a struct's letters for the header's fields, without those of BaseHeader
    hello: IntEnum  # the reply is a challenge
    challenge: IntEnum
    failed: IntEnum  # the reply to a request that cannot be done, with the reason

    @property
    def layout(self) -> struct.Struct:
        return struct.Struct(f"<4sBBxx{self.own_fields}Q")

    @property
    def own_names(self) -> list[str]:
        shared = {each.name for each in fields(BaseHeader)}
        return [each.name for each in fields(self.header) if each.name not in shared]


@dataclass(frozen=True, slots=True)
class Message(Generic[H]):
    """A proven message. The proof covers header and control data; what carries messages protects the body, too."""

    header: H
    control: Any = b""  # a buffer
    body: Any = None  # a buffer


class Seal(Generic[H]):
    """Packs and proves a protocol's messages with the key; refuses what does not prove it."""

    def __init__(self, key: str, wire: Wire[H]) -> None:
        self._wire, self._layout = wire, wire.layout
        self._values = attrgetter("kind", *wire.own_names, "length")
        self._prover = Prover(key, wire.magic, wire.version, self._layout.size)

    def frames(self, header: H, control: bytes = b"", body: Buffer | None = None) -> list[Buffer]:
        """A message as the frames to send."""
        if body is not None:
            header = replace(header, length=len(body))
        head = self._prover.seal(
            self._layout.pack(self._wire.magic, self._wire.version, *self._values(header)), control
        )
        return [head, control] if body is None else [head, control, body]

    def unpack(self, frames: Sequence[Any]) -> Message[H]:
        """The message that some zmq frames are; refuses what is not one, or was damaged."""
        if len(frames) not in (2, 3):
            raise Refused("garbage")
        head, control = frames[0].buffer, frames[1].buffer
        _, _, number, *own, length = self._layout.unpack(self._prover.fields(head))
        self._prover.prove(head, control)
        try:
            header = self._wire.header(self._wire.kinds(number), *own, length=length)
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
