"""The main of a server process: bind, serve until all trainers have left or the launcher ends it, leave a log."""

import signal
import time
from types import FrameType

import torch
import zmq

from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.server import Server
from phalanx.exchange.pserver.wire import Seal
from phalanx.launch.admission import allowlist_of
from phalanx.launch.role import Role
from phalanx.signals import handle
from phalanx.wire.allowlist import Allowlist
from phalanx.wire.door import listen

_TICK_MS = 500
_BURST = 64  # messages between looks at the clock
_FAREWELL_S = 2.0  # how long the last answers may take to leave


def serve(role: Role, *, threads: int = 1) -> None:
    """Be the server that `role` says. One thread by default: a second one, beside busy trainers, gave no clear gain."""
    torch.set_num_threads(threads)
    context = zmq.Context()
    allowlist = allowlist_of(role.peers)
    socket = bind(context, role, allowlist)
    journal = Journal(role.run / "logs" / f"{role.name}.jsonl" if role.run else None)
    server = Server(socket, role.rank, Seal(role.key), journal)
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = handle(signal.SIGTERM, stop)
    try:
        watched: dict[int, int] = {}
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        next_tick = time.monotonic()
        while not stopping and not server.finished:
            if server.members.watched() != watched:
                for descriptor in watched:
                    poller.unregister(descriptor)
                watched = server.members.watched()
                for descriptor in watched:
                    poller.register(descriptor, zmq.POLLIN)
            ready = dict(poller.poll(_TICK_MS))
            if socket in ready:
                _drain(socket, server, allowlist)
            for descriptor, rank in watched.items():
                if descriptor in ready:
                    server.lose(rank, "its process ended")
            if time.monotonic() >= next_tick:
                server.tick()
                next_tick = time.monotonic() + _TICK_MS / 1000
    finally:
        signal.signal(signal.SIGTERM, before)
        journal.close()
        socket.close(linger=int(1000 * _FAREWELL_S))
        context.term()


def _drain(socket: "zmq.Socket[bytes]", server: Server, allowlist: Allowlist | None) -> None:
    for _ in range(_BURST):
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        if allowlist is None:
            server.handle(frames)
        elif allowlist.admits(address := str(frames[0].get("Peer-Address"))):
            server.handle(frames)
            _narrow(allowlist, server, bytes(frames[0].buffer), address)


def _narrow(allowlist: Allowlist, server: Server, identity: bytes, address: str) -> None:
    """Where trainers' hosts were not known, they are when all have joined: then nobody else's are admitted."""
    members = server.members
    if allowlist.first_come and any(member.identity == identity for member in members.by_rank.values()):
        allowlist.add(address)
        if members.live <= members.by_rank.keys():
            allowlist.close()


def bind(
    context: "zmq.Context[zmq.Socket[bytes]]", role: Role, allowlist: Allowlist | None = None
) -> "zmq.Socket[bytes]":
    """The server's socket, bound to its address."""
    who = f"the parameter {role.name}"
    return listen(context, role.servers[role.rank], role.key, who, harm="change the model", allowlist=allowlist)
