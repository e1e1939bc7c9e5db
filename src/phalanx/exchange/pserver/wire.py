"""The wire: a fixed binary header with proof of the job's key, then raw bytes. Never pickle; control data is JSON."""

import json
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

import numpy as np

VERSION = 1
MAX_MESSAGE_BYTES = 1 << 30
_MAGIC = b"PHLX"
_FORMAT = struct.Struct("<4sBBxxIQQqIIIQQdB7xQQ")
_MAC_BYTES = 16
HEADER_BYTES = _FORMAT.size + _MAC_BYTES


class Kind(IntEnum):
    """What a message is. The first group goes from worker to server, the second from server to worker."""

    HELLO = 1  # who is there? → CHALLENGE
    JOIN = 2  # the challenge, answered; the job as JSON; shared memory → WELCOME
    VALUES = 3  # a slice's parameters, from rank 0 → DONE
    LOAD = 4  # a slice's optimizer state → DONE
    PUSH = 5  # a slice's gradient → UPDATED
    VOID = 6  # this step is not to be applied → UPDATED
    ASK = 7  # what became of that push? → UPDATED, WAITING or MISSING
    PULL = 8  # → PARAMETERS
    STATE = 9  # → STATES
    REDUCE = 10  # numbers to be summed over workers → REDUCED
    GOODBYE = 11  # → DONE
    LOST = 12  # from the launcher: a worker is dead → DONE

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


# Small messages whose payload steers the job: the proof of the key covers the payload too.
CONTROL = {Kind.HELLO, Kind.JOIN, Kind.CHALLENGE, Kind.WELCOME, Kind.FAILED, Kind.LOST, Kind.GOODBYE, Kind.DONE}


class Refused(Exception):
    """A message that is not for us. It is counted by reason and otherwise ignored."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of every message."""

    kind: Kind
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

    def reply(self, kind: Kind) -> "Header":
        return replace(self, kind=kind, length=0, checksum=0)


class Seal:
    """Packs and proves headers with the job's key; refuses what does not prove it."""

    def __init__(self, key: str) -> None:
        self._key = blake2b(key.encode(), digest_size=32).digest()

    def pack(self, header: Header, payload: bytes = b"") -> bytes:
        """The header's bytes. `payload` is given for control messages, whose proof covers it."""
        fields = _FORMAT.pack(
            *(_MAGIC, VERSION, header.kind, header.worker, header.incarnation, header.sequence, header.step),
            *(header.slice, header.samples, header.staleness, header.present, header.version, header.rate),
            *(header.codec, header.length, header.checksum),
        )
        return fields + self._proof(fields, payload if header.kind in CONTROL else b"")

    def frames(self, header: Header, payload: memoryview | bytes | None = None) -> list[memoryview | bytes]:
        """A message as the frames to send."""
        if payload is None:
            return [self.pack(header)]
        header = replace(header, length=len(payload), checksum=checksum(payload))
        return [self.pack(header, bytes(payload) if header.kind in CONTROL else b""), payload]

    def unpack(self, head: memoryview | bytes, payload: memoryview | bytes | None) -> Header:
        """A proven header; its payload has the length and the checksum that the header says."""
        if len(head) != HEADER_BYTES or bytes(head[:4]) != _MAGIC:
            raise Refused("garbage")
        if head[4] != VERSION:
            raise Refused("version")
        fields, proof = bytes(head[: _FORMAT.size]), bytes(head[_FORMAT.size :])
        numbers = _FORMAT.unpack(fields)
        covered = bytes(payload) if payload is not None and numbers[2] in CONTROL and len(payload) < 1 << 24 else b""
        if not compare_digest(proof, self._proof(fields, covered)):
            raise Refused("key")
        try:
            kind = Kind(numbers[2])
        except ValueError as error:
            raise Refused("kind") from error
        header = Header(kind, *numbers[3:])
        if payload is not None:
            if len(payload) != header.length:
                raise Refused("length")
            if checksum(payload) != header.checksum:
                raise Refused("checksum")
        return header

    def _proof(self, fields: bytes, payload: bytes) -> bytes:
        return blake2b(fields + payload, key=self._key, digest_size=_MAC_BYTES).digest()


def checksum(payload: memoryview | bytes) -> int:
    """The sum of 64-bit words: at memory speed, where CRC would cost as much as the transfer. Guards against damage
    on the way, not against forgers who can rewrite a connection: for those, use an encrypted network."""
    words = len(payload) // 8
    total = int(np.frombuffer(payload, dtype="<u8", count=words).sum(dtype=np.uint64)) if words else 0
    return (total + int.from_bytes(bytes(payload[words * 8 :]), "little") + len(payload)) % (1 << 64)


def as_json(told: Any) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()


def from_json(payload: memoryview | bytes | None) -> dict[str, Any]:
    try:
        told = json.loads(bytes(payload or b""))
    except (ValueError, RecursionError) as error:
        raise Refused("garbage") from error
    if not isinstance(told, dict):
        raise Refused("garbage")
    return told
