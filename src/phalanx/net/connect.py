"""A client's socket to a server."""

from collections.abc import Mapping

import zmq

from phalanx.errors import UserError
from phalanx.net.seal import MAX_MESSAGE_BYTES


def client_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, options: Mapping[zmq.SocketOption, int | bytes]
) -> "zmq.Socket[bytes]":
    """A socket for requests to the server at `address`, not connected yet."""
    socket = context.socket(zmq.DEALER)
    defaults = {zmq.LINGER: 0, zmq.MAXMSGSIZE: MAX_MESSAGE_BYTES, zmq.IPV6: int("[" in address)}
    for option, value in {**defaults, **options}.items():
        socket.setsockopt(option, value)
    return socket


def connect(socket: "zmq.Socket[bytes]", address: str, server: str, forms: str) -> None:
    """Connect as soon as the server listens. `server` names it in messages; `forms` are addresses that can be used."""
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise UserError(
            f"{address} is not the address of a {server}", why=str(error), remedy=f"write it as {forms}"
        ) from error
