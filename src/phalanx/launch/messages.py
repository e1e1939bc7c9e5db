"""The protocol between supervisor and agents: one JSON object a line, over the agent's standard input and output.

The supervisor sends {"request": KIND, …}. The agent sends {"event": KIND, …}: replies, output of roles, errors.
"""

import json
from collections.abc import Sequence
from types import NoneType
from typing import Any

from phalanx.config.text import read_json

PROTOCOL = 2
PING_S = 2.0
SILENCE_S = 10.0  # without a message for this long, the launcher assumes that a host is gone
LAUNCHER_SILENCE_S = 20.0  # the same of an agent, longer: a launcher that stood still for a while is to keep its hosts
GRACE_S = 4.0  # between SIGTERM and SIGKILL
ORPHAN_GRACE_S = 3.0  # the same on a host that lost its supervisor; with LAUNCHER_SILENCE_S within 25 s
CHUNK_BYTES = 48 * 1024  # of output in one message
LINE_BYTES = 4 << 20  # upper limit of a message

Message = dict[str, Any]
# An argument of a command: text, or {"local": WHAT}, which each agent replaces by its own value: "python" is its
# interpreter, "input" the file with the role and its request.
Argument = str | dict[str, str]


def encode(message: Message) -> bytes:
    """A message as ASCII, independent of locales. Bytes that are not UTF-8 become lone surrogates."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


# What the launcher uses of an agent's events. A host may send anything: its login scripts do.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {"clock": (int, float)},
    "ready": {"run": (str,)},
    "listening": {"addresses": (dict,), "iface": (str, NoneType)},
    "error": {"what": (str,), "why": (str,), "remedy": (str,)},
    "checkpoint": {"saved": (list, tuple)},  # a tuple inside the launcher's own process
    "marker": {"exists": (bool,)},
    "chunk": {"path": (str,), "offset": (int,), "bytes": (str, NoneType)},
    "started": {"role": (str,)},
    "output": {"role": (str,), "stream": (str,), "text": (str,)},
    "exit": {"role": (str,)},
}


def is_event(message: Message) -> bool:
    """Whether a message is an event with all that the launcher uses of it."""
    kind = message.get("event")
    if not isinstance(kind, str):
        return False
    missing = object()
    needed = _FIELDS.get(kind, {})
    return all(isinstance(message.get(name, missing), types) for name, types in needed.items()) and (
        kind != "checkpoint" or _is_saved(message["saved"])
    )


def _is_saved(saved: Sequence[Any]) -> bool:
    """A list of files and the text of a manifest."""
    if len(saved) != 2 or not isinstance(saved[0], list):
        return False
    return isinstance(saved[1], str) and all(isinstance(name, str) for name in saved[0])


def decode(line: bytes) -> Message | None:
    """The message in a line, or None: a login script may print something before the agent does."""
    try:
        message = read_json(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
