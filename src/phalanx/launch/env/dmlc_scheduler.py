"""The scheduler of a DMLC job: it ends after all other processes, since DMLC's trackers take its end for the job's.

Each process holds a connection to it, which the system closes when the process ends, however it ends. Its first bytes
prove that it belongs to the job, so other programs cannot keep the scheduler running.
"""

import hmac
import selectors
import socket
import time
from hashlib import blake2b

from phalanx.config.role import Role
from phalanx.net.admission import allowlist_of
from phalanx.net.interfaces import bound_socket, own_address_of
from phalanx.net.waiting import connect_failure, here, say

_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}  # a lost host: after a minute
_CONNECT_S = 10.0
_held: list[socket.socket] = []  # until this process ends


def open_listener(host: str) -> int:
    """Listen for the job's processes, at the scheduler's address. Returns the port."""
    listener = bound_socket(own_address_of(host) or ("::" if ":" in host else "0.0.0.0"))
    listener.listen(1024)
    _held.append(listener)
    return int(listener.getsockname()[1])


def connect(role: Role, host: str, port: int) -> None:
    """Connect to the scheduler until this process ends. If that fails, the scheduler does not wait for this process."""
    try:
        _held.append(socket.create_connection((host, port), timeout=_CONNECT_S))
        _held[-1].sendall(_proof(role))
    except OSError as error:
        say(
            f"warning: {role.name} on {here()} cannot reach the scheduler at {host}:{port}: {connect_failure(error)}; "
            "it continues, and the scheduler may end first"
        )


def await_end(role: Role, timeout_s: float) -> None:
    """Wait until all connected processes have ended. One that does not connect in time counts as ended."""
    allowlist, deadline = allowlist_of(role.allowed_hosts), time.monotonic() + timeout_s
    count, connected = 0, set[socket.socket]()
    with selectors.DefaultSelector() as watched, _held.pop() as listener:
        watched.register(listener, selectors.EVENT_READ)
        while connected or (count < role.world and time.monotonic() < deadline):
            left_s = max(0.0, deadline - time.monotonic())
            for key, _ in watched.select(left_s if count < role.world and left_s else None):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listener:
                    connection, (address, *_) = listener.accept()
                    if allowlist is None or allowlist.admits(address):
                        watched.register(_with_keepalive(connection), selectors.EVENT_READ)
                    else:
                        connection.close()
                    continue
                received = _receive(connection)
                if connection not in connected and count < role.world and hmac.compare_digest(received, _proof(role)):
                    connected.add(connection)
                    count += 1
                elif not received or connection not in connected:  # it has ended, or is not of this job
                    connected.discard(connection)
                    watched.unregister(connection)
                    connection.close()
        for key in watched.get_map().values():
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not listener:
                key.fileobj.close()


def _with_keepalive(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
    return connection


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:  # reset, or a lost host
        return b""


def _proof(role: Role) -> bytes:
    return blake2b(b"phalanx attendance " + role.key.encode(), digest_size=32).digest()
