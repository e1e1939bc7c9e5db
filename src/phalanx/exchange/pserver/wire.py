"""The wire: a fixed binary header with proof of the job's key, then raw bytes. Never pickle; control data is JSON."""

import struct
from dataclasses import dataclass, replace
from enum import IntEnum

from phalanx.net.seal import Prover, Refused, check_payload, checksum

VERSION = 1
_MAGIC = b"PHLX"
_FORMAT = struct.Struct("<4sBBxxIQQqIIIQQdB7xQQ")


class MessageKind(IntEnum):
    """What a message is. The first group goes from worker to server, the second from server to worker."""

    HELLO = 1  # who is there? → CHALLENGE
    JOIN = 2  # the challenge, answered; the job as JSON; shared memory → WELCOME
    VALUES = 3  # a slice's parameters, from rank 0 → DONE
    LOAD = 4  # a slice's optimizer state → DONE
    PUSH = 5  # a slice's gradient → UPDATED
    VOID = 6  # this step is not to be applied → UPDATED
    ASK = 7  # what became of that push? → UPDATED, WAITING or MISSING
    PULL = 8  # → PARAMETERS
    STATE = 9  # a slice's optimizer state; where a step is named, as it was before it, with its parameters → STATES
    REDUCE = 10  # numbers to be summed over workers → REDUCED
    GOODBYE = 11  # → DONE
    LOST = 12  # from the launcher: a worker is dead → DONE
    LEAVING = 13  # this worker pushes no more, and has yet to save and say goodbye → DONE
    GATHER = 14  # the challenge, answered; a text on a topic, before anybody joins → GATHERED

    CHALLENGE = 32
    WELCOME = 33
    DONE = 34
    UPDATED = 35
    WAITING = 36
    MISSING = 37
    PARAMETERS = 38
    STATES = 39
    REDUCED = 40
    FAILED = 41  # the job cannot go on, and why
    GATHERED = 42  # every worker's text, or who is missing


# Small messages whose payload steers the job: the proof of the key covers the payload too.
CONTROL = {
    MessageKind.HELLO,
    MessageKind.JOIN,
    MessageKind.CHALLENGE,
    MessageKind.WELCOME,
    MessageKind.FAILED,
    MessageKind.LOST,
    MessageKind.LEAVING,
    MessageKind.GOODBYE,
    MessageKind.DONE,
    MessageKind.GATHER,
    MessageKind.GATHERED,
}


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of every message."""

    kind: MessageKind
    worker: int = 0
    incarnation: int = 0  # random, new each time that a worker starts
    sequence: int = 0  # counts a worker's steps or requests: a message sent twice is known by it
    step: int = -1
    slice: int = 0
    samples: int = 0
    staleness: int = 0
    present: int = 0  # which pieces of the slice have a gradient, one bit each
    version: int = 0  # of the slice: the one that a push is based on, or the one that an answer gives
    rate: float = 0.0
    codec: int = 0  # how the payload is compressed; 0 is plain float32
    length: int = 0  # of the payload, which lies in shared memory or follows as the second frame
    checksum: int = 0

    def reply(self, kind: MessageKind) -> "Header":
        return replace(self, kind=kind, length=0, checksum=0)


class Seal:
    """Packs and proves headers with the job's key; refuses what does not prove it."""

    def __init__(self, key: str) -> None:
        self._prover = Prover(key, _MAGIC, VERSION, _FORMAT.size)

    def pack(self, header: Header, payload: bytes = b"") -> bytes:
        """The header's bytes. `payload` is given for control messages, whose proof covers it."""
        fields = _FORMAT.pack(
            *(_MAGIC, VERSION, header.kind, header.worker, header.incarnation, header.sequence, header.step),
            *(header.slice, header.samples, header.staleness, header.present, header.version, header.rate),
            *(header.codec, header.length, header.checksum),
        )
        return self._prover.seal(fields, payload if header.kind in CONTROL else b"")

    def frames(self, header: Header, payload: memoryview | bytes | None = None) -> list[memoryview | bytes]:
        """A message as the frames to send."""
        if payload is None:
            return [self.pack(header)]
        header = replace(header, length=len(payload), checksum=checksum(payload))
        return [self.pack(header, bytes(payload) if header.kind in CONTROL else b""), payload]

    def unpack(self, head: memoryview | bytes, payload: memoryview | bytes | None) -> Header:
        """A proven header; its payload has the length and the checksum that the header says."""
        numbers = _FORMAT.unpack(self._prover.fields(head))
        self._prover.prove(head, payload if payload is not None and numbers[2] in CONTROL else b"")
        try:
            kind = MessageKind(numbers[2])
        except ValueError as error:
            raise Refused("kind") from error
        header = Header(kind, *numbers[3:])
        if payload is not None:
            check_payload(payload, header.length, header.checksum)
        return header
