"""Hosts as users write them: `host`, `host slots=8`, `host:8`, `user@host:2222`, IPv6 in brackets, comments.

A number after a colon is a count of slots, as in MPI's lists; after `user@host` it is ssh's port, as in URLs.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import UserError

_SPELLED = re.compile(
    r"(?:(?P<user>[^@\s\[\]]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^\s:@\[\]]+))(?::(?P<number>[0-9]{1,9}))?"
)
_OPTION = re.compile(r"(slots|port)=([0-9]{1,9})")
_FORMS = "write host, host:SLOTS, host slots=8, user@host:PORT, [IPv6]:SLOTS"


@dataclass(frozen=True)
class Host:
    """A machine of the job. Without `slots` it takes an equal share of the trainers."""

    name: str
    user: str | None = None
    port: int | None = None
    slots: int | None = None

    @property
    def target(self) -> str:
        """USER@HOST for ssh, without the port."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def is_here(self) -> bool:
        return self.name in ("localhost", "127.0.0.1", "::1") and self.user is None and self.port is None


def parse_host(text: str, origin: str) -> Host:
    """One host. `origin` names the option or file, for errors."""
    words = text.split()
    found = _SPELLED.fullmatch(words[0]) if words else None
    options = [_OPTION.fullmatch(word) for word in words[1:]]
    if found is None or None in options:
        raise UserError(f"{origin}: {text!r} is not a host", why="it has none of the known forms", remedy=_FORMS)
    numbers = {option[1]: int(option[2]) for option in options if option is not None}
    if found["number"] is not None:
        numbers.setdefault("port" if found["user"] else "slots", int(found["number"]))
    name = found["six"] or found["name"]
    if name.startswith("-") or (found["user"] or "").startswith("-"):
        raise UserError(f"{origin}: {text!r} is not a host", why="ssh would take it for an option", remedy=_FORMS)
    slots, port = numbers.get("slots"), numbers.get("port")
    if slots == 0 or (port is not None and not 0 < port < 65536):
        wrong = "slots" if slots == 0 else "port"
        raise UserError(
            f"{origin}: {text!r} has an impossible number of {wrong}"
            if slots == 0
            else f"{origin}: {text!r} has no such port",
            why="slots are counted from 1, ports go to 65535",
            remedy=_FORMS,
        )
    return Host(name, found["user"], port, slots)


def parse_hosts(texts: Iterable[str], origin: str) -> list[Host]:
    """Several hosts, none twice."""
    return refuse_twice([parse_host(text, origin) for text in texts], origin)


def read_hostfile(path: Path) -> list[Host]:
    """A file with one host a line; # begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the list of hosts {path} cannot be read",
            why=getattr(error, "strerror", None) or "it is not UTF-8 text",
            remedy="give a text file with one host a line, or name hosts with --ips a,b",
        ) from error
    found = [
        parse_host(text, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if (text := line.partition("#")[0].strip())
    ]
    if not found:
        raise UserError(f"{path} names no host", why="all of its lines are empty or comments", remedy=_FORMS)
    return refuse_twice(found, str(path))


def refuse_twice(hosts: Sequence[Host], origin: str) -> list[Host]:
    seen: set[tuple[str, int | None]] = set()
    for host in hosts:
        if (host.name, host.port) in seen:
            raise UserError(
                f"{origin}: the host {host.name} is named twice",
                why="one agent runs on each host",
                remedy=f"name it once, with its number of trainers: {host.name} slots=2",
            )
        seen.add((host.name, host.port))
    return list(hosts)
