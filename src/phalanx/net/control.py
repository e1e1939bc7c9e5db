"""Control data of messages as JSON, and what of a message is refused. Nothing is ever pickled."""

import json
from typing import Any

from phalanx.config.text import read_json

MAX_MESSAGE_BYTES = 1 << 30


class Refused(Exception):
    """A message that is not accepted. It is counted by reason and otherwise ignored."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


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
