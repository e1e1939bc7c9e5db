"""The main of a server process: bind, serve until all trainers have left or the launcher ends it, leave a log."""

import signal
import time
from collections.abc import Collection
from types import FrameType

import torch
import zmq

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.exchange.liveness import heartbeats
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.presence import Presence
from phalanx.exchange.pserver.server import Server
from phalanx.exchange.pserver.wire import Seal
from phalanx.net.admission import allowlist_of
from phalanx.net.allowlist import Allowlist
from phalanx.net.bind import listen
from phalanx.net.waiting import Patience
from phalanx.signals import handle

_TICK_MS = 500
_BURST = 64  # messages between looks at the clock
_FAREWELL_S = 2.0  # how long the last answers may take to leave


def serve(role: Role, exchange: ExchangeConfig | None = None, *, threads: int = 1, code: Collection[str] = ()) -> None:
    """Be the server that `role` says. One thread by default: a second one, beside busy trainers, gave no clear gain.

    `code` are the references that trainers may name as optimizer or schedule: those of this server's own request.
    """
    exchange = exchange or ExchangeConfig()
    torch.set_num_threads(threads)
    context = zmq.Context()
    allowlist = allowlist_of(role.allowed_hosts)
    socket = bind(context, role, exchange.silence_s, allowlist)
    journal = Journal(role.run / "logs" / f"{role.name}.jsonl" if role.run else None)
    presence = Presence(socket, role.key, exchange.silence_s, _TICK_MS / 1000)
    # Our launchers start lost workers anew, and end servers that nobody needs; of others nobody comes back.
    patience_s = None if role.launcher == "phalanx" else exchange.silence_s
    server = Server(socket, role.rank, Seal(role.key), journal, presence, patience_s, code)
    waiting = Patience(exchange.timeout_s)
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
                if not server.begun and role.launcher != "phalanx":
                    _wait_for_the_first(role, waiting, presence)
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


def _wait_for_the_first(role: Role, waiting: Patience, presence: Presence) -> None:
    """Nobody has joined yet. While the first worker is here, its data or model may take any time to open."""
    if presence.here(0):
        return
    if waiting.over:
        raise UserError(
            f"no worker came to {role.name} at {role.servers[role.rank]}",
            why=f"it has waited for {waiting.timeout_s:g} s (exchange.timeout_s)",
            remedy="see whether the workers were started, and whether they know this address and the same PHALANX_KEY",
        )
    if waiting.due:
        waiting.word(f"{role.name} at {role.servers[role.rank]} waits for the first worker")


def bind(
    context: "zmq.Context[zmq.Socket[bytes]]",
    role: Role,
    silence_s: float = ExchangeConfig().silence_s,
    allowlist: Allowlist | None = None,
) -> "zmq.Socket[bytes]":
    """The server's socket, bound to its address. What is sent to somebody who is not there is an error."""
    options = {**heartbeats(silence_s), zmq.ROUTER_MANDATORY: 1}
    address, who = role.servers[role.rank], f"the parameter {role.name}"
    harm = "change the model"
    return listen(context, address, role.key, who, harm=harm, options=options, allowlist=allowlist)
