"""Where a process listens: never beyond this machine without a key or a list of allowed addresses."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from urllib.parse import urlsplit

import zmq

from phalanx.errors import UserError
from phalanx.net.allowlist import Allowlist
from phalanx.net.curve import largest_message, secure_server
from phalanx.net.own_folder import refuse_shared_folder

_HERE = ("127.0.0.1", "localhost", "::1")
_ZAP = "inproc://zeromq.zap.01"  # where ZeroMQ asks about connections: https://rfc.zeromq.org/spec/27


def listen(
    context: "zmq.Context[zmq.Socket[bytes]]",
    address: str,
    key: str,
    who: str,
    *,
    harm: str,
    options: Mapping[zmq.SocketOption, int] | None = None,
    allowlist: Allowlist | None = None,
) -> "zmq.Socket[bytes]":
    """A socket bound to `address`, for `who`. `harm` is what others could do without a key, for the error message."""
    refuse_shared_folder(address)
    if allowlist is None:
        _refuse_without_key(address, key, who, harm)
    socket = context.socket(zmq.ROUTER)
    # A full queue of a ROUTER drops messages; ours are bounded by their protocols instead.
    socket.set_hwm(0)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client that reconnects keeps its identity
    socket.setsockopt(zmq.IPV6, "[" in address)
    socket.setsockopt(zmq.MAXMSGSIZE, largest_message(address))
    for option, value in (options or {}).items():
        socket.setsockopt(option, value)
    secure_server(socket, address, key)
    if allowlist is not None:
        _guard(context, allowlist)
        socket.setsockopt(zmq.ZAP_DOMAIN, b"phalanx")  # ask about every connection
    try:
        with _only_this_user():
            socket.bind(address)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise UserError(
            f"{who} cannot listen at {address}",
            why=str(error),
            remedy="another program may use that address: choose another port, or end that program",
        ) from error
    return socket


@contextmanager
def _only_this_user() -> Iterator[None]:
    """Sockets in folders that are made now can be opened by this user only."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _guard(context: "zmq.Context[zmq.Socket[bytes]]", allowlist: Allowlist) -> None:
    """Answer ZeroMQ's questions about connections until the context ends. It asks before it reads a message.

    A libzmq socket option (ZMQ_TCP_ACCEPT_FILTER) would refuse even earlier, but cannot be narrowed later on.
    """
    questions = context.socket(zmq.REP)
    questions.setsockopt(zmq.LINGER, 0)
    questions.bind(_ZAP)

    def answer() -> None:
        try:
            while True:
                version, request, _, address, *_ = questions.recv_multipart()
                status = b"200" if allowlist.admits(address.decode()) else b"400"
                questions.send_multipart([version, request, status, b"", b"", b""])
        except zmq.ContextTerminated:
            questions.close()

    Thread(target=answer, name="phalanx-allowlist", daemon=True).start()


def _refuse_without_key(address: str, key: str, who: str, harm: str) -> None:
    parts = urlsplit(address)
    if not key and parts.scheme != "ipc" and parts.hostname not in _HERE:
        raise UserError(
            f"{who} at {address} has no key",
            why=f"any process that reaches that port could {harm}",
            remedy="set PHALANX_KEY to the same secret for all processes of the job; phalanx's launchers do",
        )
