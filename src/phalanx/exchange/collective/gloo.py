"""What gloo does not offer: the address that it will listen at, and a way to end a collective that waits.

Measured with torch 2.15: `ProcessGroupGloo.abort` and `_abort_process_group` leave a waiting all-reduce where it is.
When its connections are shut down it raises within milliseconds. Its port cannot be chosen: the options know a host
name and an interface, and it binds to port 0.
"""

import contextlib
import os
import socket
from pathlib import Path

from phalanx.net.interfaces import interface_address


def listening_address() -> str:
    """The address that torch chooses: of the interface GLOO_SOCKET_IFNAME, of the host's name, or loopback."""
    named = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if named:
        return interface_address(named)
    with contextlib.suppress(OSError):
        for family, _, _, _, place in socket.getaddrinfo(socket.gethostname(), 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind(place)
                return str(place[0])
    return "127.0.0.1"


def open_sockets() -> set[str]:
    """The sockets of this process, by names that no later one has; empty where the system has no list (not Linux)."""
    return {name for _, name in _sockets()}


def shut_down_connections(but: set[str]) -> None:
    """End the TCP connections of this process, except for those named: a call that waits for one gets an error."""
    for descriptor, name in _sockets():
        if name in but:
            continue
        # Errors mean that it was closed meanwhile, or that it only listens.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)


def _sockets() -> list[tuple[int, str]]:
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(entry.readlink())
                if name.startswith("socket:"):
                    found.append((int(entry.name), name))
    return found
