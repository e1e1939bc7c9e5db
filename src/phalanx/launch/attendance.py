"""A DMLC scheduler stays until all other processes of its job have ended: DMLC's trackers take its end for the job's.

Each process holds a connection to it, which the system closes however the process ends.
"""

import selectors
import socket
import time
from contextlib import suppress

from phalanx.launch.admission import allowlist_of
from phalanx.launch.role import Role

_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}  # a lost host: after a minute
_REACH_S = 10.0
_held: list[socket.socket] = []  # for as long as this process lives


def open_attendance(host: str) -> int:
    """The port at which the scheduler, known to the others as `host`, can be attended."""
    _held.append(socket.create_server(("", 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024))
    return int(_held[-1].getsockname()[1])


def attend(host: str, port: int) -> None:
    """Be seen by the scheduler until this process ends. Where a firewall is between them, it is not waited for."""
    with suppress(OSError):
        _held.append(socket.create_connection((host, port), timeout=_REACH_S))


def await_end(role: Role, timeout_s: float) -> None:
    """Return when all processes that have attended are gone. Who does not come in time ended before it could."""
    allowlist, deadline = allowlist_of(role.peers), time.monotonic() + timeout_s
    with selectors.DefaultSelector() as watched, _held.pop() as listener:
        while len(watched.get_map()) < role.world and (left_s := deadline - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                connection, (address, *_) = listener.accept()
            except TimeoutError:
                break
            if allowlist is not None and not allowlist.admits(address):
                connection.close()
                continue
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in _KEEPALIVE.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
            watched.register(connection, selectors.EVENT_READ, connection)
        while watched.get_map():
            for key, _ in watched.select():
                if _ended(key.data):
                    watched.unregister(key.data)
                    key.data.close()


def _ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except OSError:  # reset, or a host that no longer answers
        return True
