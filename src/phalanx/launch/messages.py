"""What conductor and agents say to one another: a JSON object a line, over the agent's standard input and output."""

import json
from typing import Any

PROTOCOL = 1
PING_S = 2.0
SILENCE_S = 10.0  # who has heard nothing for so long takes the other side for gone
GRACE_S = 4.0  # between asking a role to end and ending it
ORPHAN_GRACE_S = 3.0  # the same where nobody is left to ask; with SILENCE_S within 15 s
CHUNK_BYTES = 48 * 1024  # of output or a file in one message
LINE_BYTES = 4 << 20  # no message is longer

Message = dict[str, Any]
# A word of a command: text, or {"own": WHAT}, which each host replaces by its own: its "python", or "input": the file
# with the role and its request.
Word = str | dict[str, str]


def encode(message: Message) -> bytes:
    """ASCII, so that no locale matters; a byte that is not UTF-8 travels as a lone surrogate."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message | None:
    """The message in a line, or None: a login script may print something before the agent speaks."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
