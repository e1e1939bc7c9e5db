"""Messages between trainers and data servers: a fixed header, what it tells, and raw pixels. Never pickle."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from phalanx.net.seal import Prover, Refused, check_payload, checksum

VERSION = 1
MAX_REQUEST_BYTES = 1 << 24  # what a trainer says is small: settings, and the indices of one batch
NO_SLOT = -1
_MAGIC = b"PHLD"
_FORMAT = struct.Struct("<4sBBxxiQQIddQQ")


class DataMessageKind(IntEnum):
    """What a message is. The first group goes from trainer to server, the second from server to trainer."""

    HELLO = 1  # who is there? → CHALLENGE
    JOIN = 2  # the challenge, answered; what data is expected; shared memory → WELCOME or UNFIT
    LEASE = 3  # make this batch → BATCH or TROUBLE
    PING = 4  # → PONG
    GOODBYE = 5

    CHALLENGE = 32
    WELCOME = 33
    UNFIT = 34  # this server would make other batches, and why
    BATCH = 35
    TROUBLE = 36  # that batch cannot be made, and why
    PONG = 37
    UNKNOWN = 38  # a lease of somebody who has not joined: the server was started anew


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of every message."""

    kind: DataMessageKind
    slot: int = NO_SLOT  # the place in the trainer's shared memory where the pixels go, or are
    session: int = 0  # random, new each time that a trainer joins
    number: int = 0  # of the lease
    queue: int = 0  # leases that wait at the server, of all its trainers
    rate: float = 0.0  # samples that the server makes a second, for all its trainers
    idle: float = 0.0  # share of the time in which the server had nothing to make
    length: int = 0  # of the pixels, which lie in the slot or follow as the last frame
    checksum: int = 0

    def reply(self, kind: DataMessageKind) -> "Header":
        return replace(self, kind=kind, slot=NO_SLOT, length=0, checksum=0)


@dataclass(frozen=True, slots=True)
class Message:
    """A proven message. `told` is covered by the proof, `body` by a checksum."""

    header: Header
    told: Any  # a buffer
    body: Any = None


class Seal:
    """Packs and proves messages with the key; refuses what does not prove it."""

    def __init__(self, key: str) -> None:
        self._prover = Prover(key, _MAGIC, VERSION, _FORMAT.size)

    def frames(self, header: Header, told: bytes = b"", body: memoryview | None = None) -> list[memoryview | bytes]:
        """A message as the frames to send."""
        if body is not None:
            header = replace(header, length=len(body), checksum=checksum(body))
        fields = _FORMAT.pack(
            *(_MAGIC, VERSION, header.kind, header.slot, header.session, header.number),
            *(header.queue, header.rate, header.idle, header.length, header.checksum),
        )
        head = self._prover.seal(fields, told)
        return [head, told] if body is None else [head, told, body]

    def unpack(self, frames: Sequence[Any]) -> Message:
        """The message that some frames are; refuses what is not one, or was damaged."""
        if len(frames) not in (2, 3):
            raise Refused("garbage")
        head, told = frames[0].buffer, frames[1].buffer
        numbers = _FORMAT.unpack(self._prover.fields(head))
        self._prover.prove(head, told)
        try:
            header = Header(DataMessageKind(numbers[2]), *numbers[3:])
        except ValueError as error:
            raise Refused("kind") from error
        if len(frames) == 2:
            return Message(header, told)
        body = frames[2].buffer
        check_payload(body, header.length, header.checksum)
        return Message(header, told, body)
