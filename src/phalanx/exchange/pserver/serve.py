"""The main of a server process: bind, serve until all trainers have left or the launcher ends it, leave a log."""

import signal
import time
from types import FrameType

import torch
import zmq

from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.server import Server
from phalanx.exchange.pserver.wire import Seal
from phalanx.launch.role import Role
from phalanx.signals import handle
from phalanx.wire.door import listen

_TICK_MS = 500
_BURST = 64  # messages between looks at the clock
_FAREWELL_S = 2.0  # how long the last answers may take to leave


def serve(role: Role, *, threads: int = 1) -> None:
    """Be the server that `role` says. One thread by default: a second one, beside busy trainers, gave no clear gain."""
    torch.set_num_threads(threads)
    context = zmq.Context()
    socket = bind(context, role)
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
                _drain(socket, server)
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


def _drain(socket: "zmq.Socket[bytes]", server: Server) -> None:
    for _ in range(_BURST):
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        server.handle(frames)


def bind(context: "zmq.Context[zmq.Socket[bytes]]", role: Role) -> "zmq.Socket[bytes]":
    """The server's socket, bound to its address."""
    return listen(context, role.servers[role.rank], role.key, f"the parameter {role.name}", harm="change the model")
