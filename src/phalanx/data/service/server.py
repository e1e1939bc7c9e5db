"""A data server: trainers join, lease batches and get them. It keeps nothing that could not be lost."""

import secrets
from collections import deque
from dataclasses import replace
from typing import Any

import zmq

from phalanx.data.service.batch_workers import BatchWorkers, Done, Order
from phalanx.data.service.body import unpack_lease
from phalanx.data.service.journal import Journal
from phalanx.data.service.session import Session
from phalanx.data.service.terms import Terms, difference
from phalanx.data.service.wire import NO_SLOT, DataMessageKind, Header, Message, Seal
from phalanx.errors import UserError
from phalanx.net import shared_memory as memory
from phalanx.net.seal import Refused, as_json, from_json

_MOST_CHALLENGES = 1000


class Server:
    """Everything but the loop: `handle` takes one message and never raises for one."""

    def __init__(
        self, socket: "zmq.Socket[bytes]", seal: Seal, makers: BatchWorkers, terms: Terms, journal: Journal
    ) -> None:
        self._socket, self._seal, self._makers, self._terms, self._journal = socket, seal, makers, terms, journal
        self._sessions: dict[bytes, Session] = {}
        self._challenges: dict[bytes, str] = {}
        self._leaving: deque[tuple[zmq.MessageTracker, int]] = deque()  # pixels that zmq has not sent yet
        self._proven: set[int] = set()  # descriptors of connections that have proven the key

    @property
    def leaving(self) -> bool:
        """Whether pixels are still on their way out."""
        return bool(self._leaving)

    def handle(self, frames: list[Any]) -> None:
        """One message, as zmq frames: who sent it, then the message."""
        try:
            identity = bytes(frames[0].buffer)
            message = self._seal.unpack(frames[1:])
            self._proven.add(int(frames[-1].get(zmq.SRCFD)))
            match message.header.kind:
                case DataMessageKind.HELLO:
                    self._challenge(identity, message.header)
                case DataMessageKind.JOIN:
                    self._join(identity, message)
                case DataMessageKind.LEASE:
                    self._lease(identity, message)
                case DataMessageKind.PING:
                    self._send(identity, self._stamped(message.header.reply(DataMessageKind.PONG)))
                case DataMessageKind.GOODBYE:
                    self._forget(identity, "said goodbye")
                case _:
                    raise Refused("kind")
        except Refused as refused:
            self._journal.refused[refused.reason] += 1

    def hung_up(self, descriptor: int) -> None:
        """A connection has ended. One that never proved the key was a stranger's, whatever it tried to say."""
        if descriptor in self._proven:
            self._proven.discard(descriptor)
        else:
            self._journal.refused["connection"] += 1

    def finish(self, done: Done) -> None:
        """Send what a maker has made, unless its trainer waits for it no longer."""
        order, session = done.order, done.order.session
        if self._sessions.get(session.identity) is not session:
            self._journal.dropped += 1
            self._makers.sent(done.num_bytes)
            return
        slot = order.slot if done.error is None and done.pixels is None else NO_SLOT
        kind = DataMessageKind.BATCH if done.error is None else DataMessageKind.TROUBLE
        header = self._stamped(Header(kind, slot, session.number, order.number, length=done.length))
        if done.error is not None:
            self._send(session.identity, header, _told(done.error))
        elif done.pixels is None:
            self._send(session.identity, header, done.told)
        else:
            frames = self._seal.frames(header, done.told, memory.raw(done.pixels))
            tracker = self._socket.send_multipart([session.identity, *frames], copy=False, track=True)
            assert tracker is not None
            self._leaving.append((tracker, done.num_bytes))

    def tick(self) -> None:
        """Now and then: count what has left, and forget trainers whose process has ended."""
        while self._leaving and self._leaving[0][0].done:
            self._makers.sent(self._leaving.popleft()[1])
        for identity, session in list(self._sessions.items()):
            if session.ended:
                self._forget(identity, "has ended")
        self._journal.look(self._makers.samples, self._makers.idle_s(), self._makers.waiting, len(self._sessions))

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    # Coming and going

    def _challenge(self, identity: bytes, header: Header) -> None:
        """A number used once: an old hello that somebody recorded does not answer it."""
        if len(self._challenges) > _MOST_CHALLENGES:  # strangers cannot get here without the key; broken ones could
            self._challenges.clear()
        self._challenges[identity] = secrets.token_hex(16)
        self._send(identity, header.reply(DataMessageKind.CHALLENGE), as_json({"nonce": self._challenges[identity]}))

    def _join(self, identity: bytes, message: Message) -> None:
        told = from_json(message.told)
        nonce, wanted = self._challenges.pop(identity, None), told.get("terms")
        if nonce is None or told.get("nonce") != nonce:
            raise Refused("replay")
        if not isinstance(wanted, dict):
            raise Refused("garbage")
        session = Session.of(message.header.session, identity, told)
        self._forget(identity, "joins again")
        if differs := difference(wanted, self._terms):
            session.close()
            self._journal.note("unfit", f"{session.name} expects other batches: {differs}", trainer=session.name)
            return self._send(identity, message.header.reply(DataMessageKind.UNFIT), as_json({"why": differs}))
        self._sessions[identity] = session
        shared = session.area is not None
        way = "shared memory" if shared else "the network"
        self._journal.note("join", f"{session.name} joins, by {way}", trainer=session.name, shared_memory=shared)
        return self._send(identity, message.header.reply(DataMessageKind.WELCOME), as_json({"shared": shared}))

    def _forget(self, identity: bytes, why: str) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            session.close()
            self._makers.forget(session)
            self._journal.note("leave", f"{session.name} {why}", trainer=session.name, why=why)

    def _lease(self, identity: bytes, message: Message) -> None:
        header, session = message.header, self._sessions.get(identity)
        if session is None or session.number != header.session:
            return self._send(identity, header.reply(DataMessageKind.UNKNOWN))
        balanced = self._terms.get("data.sampling") == "balanced"
        work = unpack_lease(message.told, self._terms["training samples"], repeats=balanced)
        self._makers.add(Order(session, header.number, work, header.slot, session.place(header.slot)))
        return None

    def _stamped(self, header: Header) -> Header:
        """With how this server fares, which trainers report in their events."""
        return replace(header, queue=self._makers.waiting, rate=self._journal.rate, idle=self._journal.idle)

    def _send(self, identity: bytes, header: Header, told: bytes = b"") -> None:
        self._socket.send_multipart([identity, *self._seal.frames(header, told)])


def _told(error: UserError) -> bytes:
    return as_json({"what": error.what, "why": error.why, "remedy": error.remedy})
