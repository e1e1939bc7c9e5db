"""Proof of the job's key on every message, and JSON. Nothing is ever pickled."""

import json
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from phalanx.config.text import read_json

MAX_MESSAGE_BYTES = 1 << 30
_MAC_BYTES = 16
_MOST_COVERED = 1 << 24  # bytes of a payload that a proof may cover: control messages are small


class Refused(Exception):
    """A message that is not accepted. It is counted by reason and otherwise ignored."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Prover:
    """Adds a proof of the job's key to the fixed fields of a message, and checks it."""

    def __init__(self, key: str, magic: bytes, version: int, num_bytes: int) -> None:
        """Fields have `num_bytes` and begin with `magic` and `version`, a byte."""
        self._key = blake2b(key.encode(), digest_size=32).digest()
        self._start, self._num_bytes = magic + bytes([version]), num_bytes

    def seal(self, fields: bytes, covered: memoryview | bytes = b"") -> bytes:
        """The fields, and a proof that covers them and `covered`."""
        return fields + self._proof(fields, covered)

    def fields(self, head: memoryview | bytes) -> bytes:
        """The fields of a message, not proven yet."""
        if len(head) != self._num_bytes + _MAC_BYTES or bytes(head[:4]) != self._start[:4]:
            raise Refused("garbage")
        if head[4] != self._start[4]:
            raise Refused("version")
        return bytes(head[: self._num_bytes])

    def prove(self, head: memoryview | bytes, covered: memoryview | bytes = b"") -> None:
        """Refuse a message with a wrong proof."""
        covered = covered if len(covered) < _MOST_COVERED else b""
        if not compare_digest(bytes(head[self._num_bytes :]), self._proof(bytes(head[: self._num_bytes]), covered)):
            raise Refused("key")

    def _proof(self, fields: bytes, covered: memoryview | bytes) -> bytes:
        digest = blake2b(fields, key=self._key, digest_size=_MAC_BYTES)
        digest.update(covered)
        return digest.digest()


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(payload: memoryview | bytes | bytearray | None) -> dict[str, Any]:
    try:
        value = read_json(bytes(payload or b""))
    except ValueError as error:
        raise Refused("garbage") from error
    if not isinstance(value, dict):
        raise Refused("garbage")
    return value
