"""A job without a key of its own: whose connections its parameter servers take instead.

Job scripts of Paddle and MXNet set no key, and are to work as they are. Without one, a server takes connections from
the job's hosts only, and decides before it reads a message (`wire/door.py`). It knows the hosts in one of three ways:

- Paddle's variables name the servers' hosts and, in some scripts, the trainers'. Then it is those.
- Most scripts give a server only the number of trainers. Then trainers may come from any address that is not of the
  public internet. Once all of them have joined, it is the hosts that they came from.
- Where all processes meet at a store (at DMLC's scheduler, or at rank 0 of launchers that only count), each tells the
  address that it comes from. All take a key, too, which the keeper of the store has made: so another process of the
  same hosts is refused as well, unless it was at the store, which is closed when all have met.

This does not protect from other users of the job's hosts (Paddle), from a neighbour on a private network who joins
before the trainers do or is at the store while they meet, or from those who can read or change what is sent. A key of
the job's own (PHALANX_KEY_FILE) protects from all but the last.
"""

import socket
from urllib.parse import urlsplit

from phalanx.config.role import AllowedHosts, Role
from phalanx.errors import UserError
from phalanx.net.allowlist import Allowlist
from phalanx.net.interfaces import address_towards, is_loopback, is_own

_REMEDY = "set PHALANX_KEY_FILE to a file that every host sees, made once: openssl rand -hex 32 > FILE"
_SHOWN = 4  # hosts that a line names


def allowlist_of(allowed_hosts: AllowedHosts) -> Allowlist | None:
    """Whom a server admits; None where it admits all, since they have to prove a key."""
    if not allowed_hosts.hosts:
        return None
    return Allowlist(
        [address for host in allowed_hosts.hosts for address in _addresses(host)], first_come=allowed_hosts.first_come
    )


def refuse_unnamed(role: Role) -> None:
    """A trainer whose host the servers would not admit is told so at once: they would only be silent to it."""
    allowlist = allowlist_of(role.allowed_hosts)
    if role.kind != "trainer" or allowlist is None:
        return
    for server in role.servers:
        mine = address_towards(urlsplit(server).hostname or "")
        if not allowlist.admits(mine):
            raise UserError(
                f"the parameter server at {server} would not let this trainer in, which comes from {mine}",
                why=f"no key is set, so servers admit only the hosts that the job's variables name: {_shown(role)}",
                remedy=f"name {mine} in PADDLE_TRAINER_IPS, for all processes of the job; or {_REMEDY}",
            )


def warning_of(role: Role) -> str:
    """What the first server and the first trainer say of a job without a key of its own, if others can reach it."""
    if not role.allowed_hosts.hosts or role.kind == "scheduler" or role.rank != 0:
        return ""
    outside = not all(is_own(address) for host in role.allowed_hosts.hosts for address in _addresses(host))
    open_to_others = role.allowed_hosts.first_come and not all(is_loopback(_host(server)) for server in role.servers)
    if not outside and not open_to_others:
        return ""
    admitted = f"parameter servers take connections from {_shown(role)}"
    admitted += (
        " and, until all trainers have joined, any private address" if role.allowed_hosts.first_come else " only"
    )
    agreed = f", and the processes have agreed on a key at {role.master}" if role.key else ""
    return f"warning: no key is set: {admitted}{agreed}; to be safe from others there, {_REMEDY}"


def _shown(role: Role) -> str:
    hosts = role.allowed_hosts.hosts
    return ", ".join(hosts[:_SHOWN]) + (f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else "")


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


def _addresses(host: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))
    except socket.gaierror as error:
        raise UserError(
            f"the name {host} is not known on {socket.gethostname()}",
            why=f"{error.strerror or error}; no key is set, so connections are judged by the hosts they come from",
            remedy=f"name hosts by their addresses; or {_REMEDY}",
        ) from error
