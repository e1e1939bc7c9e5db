"""The protocol between trainers and data servers: its kinds of messages, and their header."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

from phalanx.net.messages import Message, SessionHeader, Wire

NO_SLOT = -1


class DataMessageKind(IntEnum):
    """What a message is. The first group goes from trainer to server, the second from server to trainer."""

    JOIN = 1  # what data is expected; shared memory → WELCOME or UNFIT
    LEASE = 2  # make this batch → BATCH, TROUBLE or UNKNOWN
    PING = 3  # → PONG
    GOODBYE = 4

    WELCOME = 32
    UNFIT = 33  # this server would make other batches, and why
    BATCH = 34
    TROUBLE = 35  # that batch cannot be made, and why
    PONG = 36
    UNKNOWN = 37  # a lease of a trainer that has not joined: the server was started anew


@dataclass(frozen=True, slots=True)
class Header(SessionHeader):
    """The fixed part of every message."""

    slot: int = NO_SLOT  # the place in the trainer's shared memory where the pixels go, or are
    queue: int = 0  # leases that wait at the server, of all its trainers
    rate: float = 0.0  # samples that the server makes a second, for all its trainers
    idle: float = 0.0  # share of the time in which the server had nothing to make

    def reply(self, kind: DataMessageKind) -> Self:
        return replace(self, kind=kind, slot=NO_SLOT, length=0)


WIRE = Wire(
    magic=b"PHLD",
    version=5,
    header=Header,
    kinds=DataMessageKind,
    own_fields="QQiIdd",
    failed=DataMessageKind.TROUBLE,
)

DataMessage = Message[Header]
