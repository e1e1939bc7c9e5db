"""A client's socket to a server."""

from collections.abc import Mapping

import zmq

from phalanx.errors import UserError
from phalanx.net.curve import largest_message, secure_client
from phalanx.net.own_folder import refuse_shared_folder


def client_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, key: str, options: Mapping[zmq.SocketOption, int | bytes]
) -> "zmq.Socket[bytes]":
    """A socket for requests to the server at `address`, which has to prove the key; not connected yet."""
    refuse_shared_folder(address)
    socket = context.socket(zmq.DEALER)
    defaults = {zmq.LINGER: 0, zmq.MAXMSGSIZE: largest_message(address), zmq.IPV6: int("[" in address)}
    for option, value in {**defaults, **options}.items():
        socket.setsockopt(option, value)
    secure_client(socket, address, key)
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
