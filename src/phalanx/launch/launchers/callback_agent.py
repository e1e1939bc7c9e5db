"""An agent that connects to the launcher, for clusters that can start a command but give no connection to it.

`python -m phalanx.launch.launchers.callback_agent` reads PHALANX_CALLBACK: the launcher's address, its public key, and
a secret token. The connection is encrypted (CURVE), since it carries the job's key.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import zmq
import zmq.asyncio

from phalanx.errors import EXIT_USER, UserError
from phalanx.launch.agent import Agent, receive, serve_until_end
from phalanx.launch.messages import LINE_BYTES, SILENCE_S, Message, decode, encode
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.net.curve import MAX_UNPROVEN_BYTES
from phalanx.net.interfaces import address_towards
from phalanx.roles.lifeline import hold_lifeline

CALLBACK = "PHALANX_CALLBACK"
HELLO = "hello"  # the launcher's request for the agent's hello
_LINGER_MS = 1000
_FRAME_BYTES = 48 << 10  # of a message; encryption adds to it


@dataclass(frozen=True)
class Callback:
    """How an agent connects to the launcher. Its text needs no quoting in a shell."""

    address: str
    public_key: bytes
    token: str

    def __str__(self) -> str:
        return f"{self.address},{self.public_key.hex()},{self.token}"


def parse_callback(text: str) -> Callback:
    try:
        address, key, token = text.split(",")
        return Callback(address, bytes.fromhex(key), token)
    except ValueError as error:
        raise UserError(
            f"{CALLBACK} is not set, or not valid",
            why="`phalanx launch` starts this program and sets it",
            remedy="phalanx launch --launcher yarn, or ray",
        ) from error


def set_options(socket: zmq.asyncio.Socket, address: str) -> None:
    """Options of both ends: unlimited queues, heartbeats that detect a dead connection, small frames.

    The limit of a frame holds for connections that have proven nothing, too. Longer messages are several frames.
    """
    socket.maxmsgsize = MAX_UNPROVEN_BYTES
    socket.ipv6 = address.startswith("tcp://[")
    socket.sndhwm = socket.rcvhwm = 0
    socket.linger = _LINGER_MS
    socket.heartbeat_ivl, socket.heartbeat_timeout = 2000, int(1000 * SILENCE_S)


def in_frames(message: Message) -> list[bytes]:
    """A message as frames to send."""
    line = encode(message)
    return [line[start : start + _FRAME_BYTES] for start in range(0, len(line), _FRAME_BYTES)]


def from_frames(frames: Sequence[bytes]) -> bytes:
    """The line that was sent as these frames; empty where it is longer than a message may be."""
    return b"".join(frames) if sum(map(len, frames)) <= LINE_BYTES else b""


async def connect(callback: Callback) -> None:
    """Run this host's agent until the launcher ends it or is gone."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        set_options(socket, callback.address)
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = callback.public_key
        socket.connect(callback.address)
        host = urlsplit(callback.address).hostname or ""
        socket.send_multipart(in_frames({"token": callback.token, "address": address_towards(host)}))

        def send(message: Message) -> None:
            socket.send_multipart(in_frames(message))

        agent = Agent(send)

        async def next_line() -> bytes:
            line = from_frames(await socket.recv_multipart())
            if (decode(line) or {}).get("request") == HELLO:
                agent.hello()
            return line

        await serve_until_end(agent, receive(next_line, agent, SILENCE_S))
        await socket.send_multipart(in_frames({"event": "bye"}))


def main() -> None:
    try:
        callback = parse_callback(os.environ.pop(CALLBACK, ""))
        hold_lifeline()
        with adopting_orphans():
            run_loop(connect(callback))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_USER)


if __name__ == "__main__":
    main()
