"""The protocol between supervisor and agents: one JSON object a line, over the agent's standard input and output.

The supervisor sends {"request": KIND, …}. The agent sends {"event": KIND, …}: replies, output of roles, errors.
"""

import json
from typing import Any

from phalanx.config.text import read_json

PROTOCOL = 2
PING_S = 2.0
SILENCE_S = 10.0  # without a message for this long, each side assumes that the other is gone
GRACE_S = 4.0  # between SIGTERM and SIGKILL
ORPHAN_GRACE_S = 3.0  # the same on a host that lost its supervisor; with SILENCE_S within 15 s
CHUNK_BYTES = 48 * 1024  # of output in one message
LINE_BYTES = 4 << 20  # upper limit of a message

Message = dict[str, Any]
# An argument of a command: text, or {"local": WHAT}, which each agent replaces by its own value: "python" is its
# interpreter, "input" the file with the role and its request.
Argument = str | dict[str, str]


def encode(message: Message) -> bytes:
    """A message as ASCII, independent of locales. Bytes that are not UTF-8 become lone surrogates."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message | None:
    """The message in a line, or None: a login script may print something before the agent does."""
    try:
        message = read_json(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
