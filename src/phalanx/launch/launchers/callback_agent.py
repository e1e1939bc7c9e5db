"""An agent that dials the launcher, for clusters that start a command somewhere but give no line to it.

`python -m phalanx.launch.launchers.callback_agent` finds an invitation in its environment: where the launcher listens,
its public key, and the token that lets this process in. The traffic is encrypted (CURVE): it includes the job's key.
"""

import os
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import zmq
import zmq.asyncio

from phalanx.errors import EXIT_USER, UserError
from phalanx.launch.agent import Agent, attend, hear
from phalanx.launch.messages import SILENCE_S, Message, decode, encode
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.net.interfaces import address_towards
from phalanx.roles.lifeline import hold_lifeline

INVITATION = "PHALANX_INVITATION"
GREET = "greet"  # what the launcher says when it wants the agent's hello
_LINGER_MS = 1000


@dataclass(frozen=True)
class Invitation:
    """As text it has letters, digits and a few signs that no shell looks at."""

    place: str
    key: bytes
    word: str

    def __str__(self) -> str:
        return f"{self.place},{self.key.hex()},{self.word}"


def parse_invitation(text: str) -> Invitation:
    try:
        place, key, word = text.split(",")
        return Invitation(place, bytes.fromhex(key), word)
    except ValueError as error:
        raise UserError(
            f"{INVITATION} is not set, or not what a launcher gave",
            why="this process is started by `phalanx launch`, and is of no use by itself",
            remedy="phalanx launch --launcher yarn, or ray",
        ) from error


def harden(socket: zmq.asyncio.Socket, place: str) -> None:
    """What both ends have in common: nothing waits in vain, and a dead line is noticed."""
    socket.ipv6 = place.startswith("tcp://[")
    socket.sndhwm = socket.rcvhwm = 0
    socket.linger = _LINGER_MS
    socket.heartbeat_ivl, socket.heartbeat_timeout = 2000, int(1000 * SILENCE_S)


async def dial(invitation: Invitation) -> None:
    """Be the agent of this host until the launcher says goodbye or is gone."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        harden(socket, invitation.place)
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = invitation.key
        socket.connect(invitation.place)
        host = urlsplit(invitation.place).hostname or ""
        socket.send(encode({"dial": invitation.word, "address": address_towards(host)}))

        def say(message: Message) -> None:
            socket.send(encode(message))

        agent = Agent(say)

        async def next_line() -> bytes:
            line = await socket.recv()
            if (decode(line) or {}).get("do") == GREET:
                agent.hello()
            return line

        await attend(agent, hear(next_line, agent))
        await socket.send(encode({"say": "bye"}))


def main() -> None:
    try:
        invitation = parse_invitation(os.environ.pop(INVITATION, ""))
        hold_lifeline()
        with adopting_orphans():
            run_loop(dial(invitation))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_USER)


if __name__ == "__main__":
    main()
