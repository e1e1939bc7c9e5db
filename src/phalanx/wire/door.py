"""Where a process listens: never beyond this machine without a key."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import zmq

from phalanx.errors import UserError
from phalanx.wire.seal import MAX_MESSAGE_BYTES

_HERE = ("127.0.0.1", "localhost", "::1")


def listen(
    context: "zmq.Context[zmq.Socket[bytes]]",
    address: str,
    key: str,
    who: str,
    *,
    harm: str,
    options: Mapping[zmq.SocketOption, int] | None = None,
) -> "zmq.Socket[bytes]":
    """A socket bound to `address`. `who` would listen there, and `harm` is what a stranger could do without a key."""
    _refuse_open_door(address, key, who, harm)
    socket = context.socket(zmq.ROUTER)
    # A full queue of a ROUTER drops messages; ours are bounded by their protocols instead.
    socket.set_hwm(0)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that reconnects keeps its place
    socket.setsockopt(zmq.IPV6, "[" in address)
    for option, value in {zmq.MAXMSGSIZE: MAX_MESSAGE_BYTES, **(options or {})}.items():
        socket.setsockopt(option, value)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise UserError(
            f"{who} cannot listen at {address}",
            why=str(error),
            remedy="another program may use that address: choose another port, or end that program",
        ) from error
    return socket


def _refuse_open_door(address: str, key: str, who: str, harm: str) -> None:
    parts = urlsplit(address)
    if not key and parts.scheme != "ipc" and parts.hostname not in _HERE:
        raise UserError(
            f"{who} at {address} has no key",
            why=f"anybody who reaches that port could {harm}",
            remedy="set PHALANX_KEY to the same secret for all processes of the job; phalanx's launchers do",
        )
