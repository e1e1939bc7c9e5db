"""Jobs without a key of their own: which connections their parameter servers accept.

Job scripts of Paddle and MXNet set no key, and have to work unchanged. Without a key, a server accepts connections from
the job's hosts only, and decides before it reads a message (`net/bind.py`). It knows the hosts in one of three ways:

- Paddle's variables name the servers' hosts and, in some scripts, the trainers'. Then it accepts those.
- Most scripts give a server only the number of trainers. Then trainers may come from any address outside of the public
  internet. Once all of them have joined, only the hosts that they came from are accepted.
- Where all processes register at a store (DMLC's scheduler, or rank 0 of launchers that only count), each sends its
  own address. They also share a key, which the process with the store has made. So other processes of the same hosts
  are refused too, unless they were at the store, which is closed when all have registered.

This does not protect from other users of the job's hosts (Paddle), from another machine on a private network that
joins before the trainers do or is at the store at the same time, or from anyone who can read or change the traffic. A
key of the job's own (PHALANX_KEY_FILE) protects from all but the last.
"""

import socket
from urllib.parse import urlsplit

from phalanx.config.role import AllowedHosts, Role
from phalanx.errors import UserError
from phalanx.net.allowlist import Allowlist
from phalanx.net.interfaces import address_towards, is_loopback, is_own

_REMEDY = "set PHALANX_KEY_FILE to a file that every host sees, made once: (umask 077; openssl rand -hex 32 > FILE)"
_SHOWN = 4  # hosts that a line names


def allowlist_of(allowed_hosts: AllowedHosts) -> Allowlist | None:
    """The addresses that a server accepts; None where it accepts all, because they have to prove a key."""
    if not allowed_hosts.hosts:
        return None
    return Allowlist(
        [address for host in allowed_hosts.hosts for address in _addresses(host)], first_come=allowed_hosts.first_come
    )


def refuse_unnamed(role: Role) -> None:
    """Refuse at once a trainer whose host the servers would not accept: they would just not answer it."""
    allowlist = allowlist_of(role.allowed_hosts)
    if role.kind != "trainer" or allowlist is None:
        return
    for server in role.servers:
        mine = address_towards(urlsplit(server).hostname or "")
        if not allowlist.admits(mine):
            raise UserError(
                f"the parameter server at {server} would not accept this trainer, which connects from {mine}",
                why=f"no key is set, so servers accept only the hosts that the job's variables name: {_shown(role)}",
                remedy=f"name {mine} in PADDLE_TRAINER_IPS, for all processes of the job; or {_REMEDY}",
            )


def warning_of(role: Role) -> str:
    """The warning of the first server and trainer where a job has no key of its own and others can reach it."""
    if not role.allowed_hosts.hosts or role.kind == "scheduler" or role.rank != 0:
        return ""
    outside = not all(is_own(address) for host in role.allowed_hosts.hosts for address in _addresses(host))
    open_to_others = role.allowed_hosts.first_come and not all(is_loopback(_host(server)) for server in role.servers)
    if not outside and not open_to_others:
        return ""
    admitted = f"parameter servers accept connections from {_shown(role)}"
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
            why=f"{error.strerror or error}; no key is set, so the host of a connection decides whether it is accepted",
            remedy=f"name hosts by their addresses; or {_REMEDY}",
        ) from error
