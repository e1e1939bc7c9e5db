"""ZeroMQ's CURVE on sockets beyond a private folder: both ends have the job's key, and all that they send is encrypted.

CURVE's key pair of the server is derived from the job's key. Its public half is never sent, so only who has the job's
key can connect, and a client only talks to a server that has it. ZeroMQ reads no message before that is proven.
"""

from hashlib import blake2b
from urllib.parse import urlsplit

import zmq
from zmq.utils import z85

from phalanx.net.control import MAX_MESSAGE_BYTES

# What a connection that has proven nothing may make us hold. Larger messages go over lanes (`net/lane.py`).
MAX_UNPROVEN_BYTES = 64 << 10


def largest_message(address: str) -> int:
    """Bytes of a frame that a socket at this address accepts. ZeroMQ applies it to handshakes, too."""
    return MAX_MESSAGE_BYTES if is_private(address) else MAX_UNPROVEN_BYTES


def is_private(address: str) -> bool:
    """Whether only processes of this user reach an address: a socket in a folder, of a mode that `net/bind.py` sets."""
    return urlsplit(address).scheme in ("ipc", "inproc")


def needs_curve(address: str, key: str) -> bool:
    """Whether a socket at this address proves the key by CURVE: unless only this user reaches it, or there is none."""
    return bool(key) and not is_private(address)


def secure_server(socket: "zmq.Socket[bytes]", address: str, key: str) -> None:
    """Before it binds: accept only clients that have the key."""
    if needs_curve(address, key):
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, _secret(key))


def secure_client(socket: "zmq.Socket[bytes]", address: str, key: str) -> None:
    """Before it connects: talk only to a server that has the key. Holds for the connections that follow."""
    if needs_curve(address, key):
        public, secret = zmq.curve_keypair()
        socket.setsockopt(zmq.CURVE_SERVERKEY, zmq.curve_public(_secret(key)))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)


def _secret(key: str) -> bytes:
    return z85.encode(blake2b(b"phalanx curve " + key.encode(), digest_size=32).digest())
