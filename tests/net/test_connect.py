"""A client reaches a server at an IPv6 address too, and an address that cannot be one is explained."""

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.bind import listen
from phalanx.net.connect import client_socket, connect


def test_a_client_reaches_a_server_by_ipv6() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        try:
            server = listen(context, "tcp://[::1]:*", "", "a server", harm="read")
        except UserError:
            pytest.skip("this machine has no IPv6")
        address = server.getsockopt_string(zmq.LAST_ENDPOINT)
        client = client_socket(context, address, "", {})
        connect(client, address, "server", "tcp://HOST:PORT")
        client.setsockopt(zmq.LINGER, 5000)
        client.send(b"hello")
        assert server.poll(10_000)
    finally:
        context.destroy(linger=0)


def test_an_address_that_cannot_be_used_is_explained() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = client_socket(context, "nonsense", "", {})
    with pytest.raises(UserError, match="nonsense is not the address of a data server") as caught:
        connect(socket, "nonsense", "data server", "tcp://HOST:PORT")
    assert "tcp://HOST:PORT" in caught.value.remedy
    context.term()
