"""A DMLC scheduler stays until all other processes of its job have ended: DMLC's trackers take its end for the job's.

Each process holds a connection to it, which the system closes however the process ends. What it says first proves that
it is one of the job's: a stranger that holds a connection holds up nobody.
"""

import hmac
import selectors
import socket
import time
from hashlib import blake2b

from phalanx.config.role import Role
from phalanx.net.admission import allowlist_of
from phalanx.net.interfaces import bound_socket
from phalanx.net.waiting import here, say, told

_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}  # a lost host: after a minute
_REACH_S = 10.0
_held: list[socket.socket] = []  # for as long as this process lives


def open_attendance(host: str) -> int:
    """The port at which the scheduler, known to the others as `host`, can be attended."""
    listener = bound_socket("::" if ":" in host else "0.0.0.0")
    listener.listen(1024)
    _held.append(listener)
    return int(listener.getsockname()[1])


def attend(role: Role, host: str, port: int) -> None:
    """Be seen by the scheduler until this process ends. Where a firewall is between them, it is not waited for."""
    try:
        _held.append(socket.create_connection((host, port), timeout=_REACH_S))
        _held[-1].sendall(_proof(role))
    except OSError as error:
        say(
            f"warning: {role.name} on {here()} cannot reach the scheduler at {host}:{port}: {told(error)}; "
            "it goes on, and the scheduler may end before it does"
        )


def await_end(role: Role, timeout_s: float) -> None:
    """Return when all processes that have attended are gone. Who does not come in time ended before it could."""
    allowlist, deadline = allowlist_of(role.allowed_hosts), time.monotonic() + timeout_s
    came, attending = 0, set[socket.socket]()
    with selectors.DefaultSelector() as watched, _held.pop() as listener:
        watched.register(listener, selectors.EVENT_READ)
        while attending or (came < role.world and time.monotonic() < deadline):
            left_s = max(0.0, deadline - time.monotonic())
            for key, _ in watched.select(left_s if came < role.world and left_s else None):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listener:
                    connection, (address, *_) = listener.accept()
                    if allowlist is None or allowlist.admits(address):
                        watched.register(_kept_alive(connection), selectors.EVENT_READ)
                    else:
                        connection.close()
                    continue
                said = _heard(connection)
                if connection not in attending and came < role.world and hmac.compare_digest(said, _proof(role)):
                    attending.add(connection)
                    came += 1
                elif not said or connection not in attending:  # it has ended, or is a stranger
                    attending.discard(connection)
                    watched.unregister(connection)
                    connection.close()
        for key in watched.get_map().values():
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not listener:
                key.fileobj.close()


def _kept_alive(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
    return connection


def _heard(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:  # reset, or a host that no longer answers
        return b""


def _proof(role: Role) -> bytes:
    return blake2b(b"phalanx attendance " + role.key.encode(), digest_size=32).digest()
