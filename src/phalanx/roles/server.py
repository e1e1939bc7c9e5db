"""The parameter server: serves until all workers have left, and writes a log.

A signal has it ask the workers to save and leave, since what they trained is here. It leaves after them, or at a second
signal.
"""

import signal
from collections.abc import Collection
from functools import partial
from typing import Any

import torch
import zmq

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.exchange.liveness import heartbeats
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.presence import Presence
from phalanx.exchange.pserver.server import Server
from phalanx.net.admission import allowlist_of
from phalanx.net.allowlist import Allowlist
from phalanx.net.key import key_for
from phalanx.net.poll_loop import TICK_S, PollLoop, drain, stop_on
from phalanx.net.server_channel import ServerChannel
from phalanx.net.waiting import Patience

_LINGER_S = 2.0  # for the last replies to be sent


def serve(role: Role, exchange: ExchangeConfig | None = None, *, threads: int = 1, code: Collection[str] = ()) -> int:
    """Run a parameter server. Returns its exit code.

    One thread by default: next to busy trainers a second one gave no clear gain.

    `code` are the references that trainers may name as optimizer or schedule: those of this server's own request.
    """
    exchange = exchange or ExchangeConfig()
    torch.set_num_threads(threads)
    context = zmq.Context()
    allowlist = allowlist_of(role.allowed_hosts)
    channel, key = bind(context, role, exchange, allowlist), key_for(role.servers, role.key)
    journal = Journal(role.run / "logs" / f"{role.name}.jsonl" if role.run else None)
    presence = Presence(channel.socket, key, exchange.silence_s, TICK_S)
    # Our launchers restart lost workers and end unused servers. Other launchers do not restart workers.
    patience_s = None if role.launcher == "phalanx" else exchange.silence_s
    server = Server(channel, role.rank, journal, presence, patience_s, code)
    waiting = Patience(exchange.timeout_s)
    leaving: Patience | None = None  # once a signal has come

    def tick() -> None:
        server.tick()
        if not server.begun and role.launcher != "phalanx":
            _wait_for_first(role, waiting, presence)

    loop = PollLoop(tick)
    channel.watch(loop, partial(drain, channel, partial(_handle, server, allowlist)))
    watched: dict[int, int] = {}  # by descriptor: the worker whose process it watches
    try:
        with stop_on(signal.SIGTERM, signal.SIGINT) as stop:
            while not server.finished and not stop.again and not (leaving and leaving.over):
                if stop and leaving is None:
                    leaving = Patience(exchange.timeout_s)
                    server.stop()
                watched = _watch_processes(loop, server, watched)
                loop.turn()
    finally:
        journal.close()
        channel.close(_LINGER_S)
        context.term()
    if server.trained or not role.unfinished_code:
        return 0
    return 128 + signal.SIGTERM if stop else role.unfinished_code


def _watch_processes(loop: PollLoop, server: Server, before: dict[int, int]) -> dict[int, int]:
    """Have the loop notice at once when a worker's process on this machine ends."""
    now = server.members.watched()
    if now != before:
        for descriptor in before:
            loop.remove(descriptor)
        for descriptor, rank in now.items():
            loop.add(descriptor, partial(server.lose, rank, "its process ended"))
    return now


def _handle(server: Server, allowlist: Allowlist | None, frames: list[Any]) -> None:
    if allowlist is None:
        server.handle(frames)
    elif allowlist.admits(address := str(frames[0].get("Peer-Address"))):
        server.handle(frames)
        _restrict(allowlist, server, bytes(frames[0].buffer), address)


def _restrict(allowlist: Allowlist, server: Server, identity: bytes, address: str) -> None:
    """Add hosts of trainers that joined, if they were unknown. When all have joined, admit no others."""
    members = server.members
    if allowlist.first_come and any(member.identity == identity for member in members.by_rank.values()):
        allowlist.add(address)
        if not members.not_joined:
            allowlist.close()


def _wait_for_first(role: Role, waiting: Patience, presence: Presence) -> None:
    """No worker has joined yet. While the first one is connected, its data or model may take any time to open."""
    if presence.here(0):
        return
    if waiting.over:
        raise UserError(
            f"no worker connected to {role.name} at {role.servers[role.rank]}",
            why=f"it waited for {waiting.timeout_s:g} s (exchange.timeout_s)",
            remedy="check that the workers have started, with this address and the same PHALANX_KEY",
        )
    if waiting.due:
        waiting.report(f"{role.name} at {role.servers[role.rank]} waits for the first worker")


def bind(
    context: "zmq.Context[zmq.Socket[bytes]]",
    role: Role,
    exchange: ExchangeConfig | None = None,
    allowlist: Allowlist | None = None,
) -> ServerChannel:
    """The server's channel, at its address. Sending to a worker that is not connected is an error."""
    exchange = exchange or ExchangeConfig()
    return ServerChannel(
        context,
        role.servers[role.rank],
        key_for(role.servers, role.key),
        f"the parameter {role.name}",
        harm="change the model",
        encrypt=exchange.encrypt == "on",
        options={**heartbeats(exchange.silence_s), zmq.ROUTER_MANDATORY: 1},
        allowlist=allowlist,
        silence_s=exchange.silence_s,
    )
