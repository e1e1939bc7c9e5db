"""A data server: trainers join, lease batches and get them. It has nothing that could be lost."""

from collections import deque
from dataclasses import replace
from typing import Any

from phalanx.data.service.batch_workers import BatchRequest, BatchWorkers, FinishedBatch
from phalanx.data.service.body import unpack_lease
from phalanx.data.service.journal import Journal
from phalanx.data.service.session import Session
from phalanx.data.service.terms import Terms, difference
from phalanx.data.service.wire import NO_SLOT, WIRE, DataMessageKind, Header
from phalanx.net import shared_memory as memory
from phalanx.net.client_channel import Sent
from phalanx.net.control import MAX_MESSAGE_BYTES, Refused, as_json, from_json
from phalanx.net.messages import pack_error
from phalanx.net.request_server import Connections, PeerRequest, RequestServer
from phalanx.net.server_channel import ServerChannel


class Server:
    """The sessions of one data server. `handle` takes one message, and never raises because of it."""

    def __init__(self, channel: ServerChannel, batch_workers: BatchWorkers, terms: Terms, journal: Journal) -> None:
        self._batch_workers, self._terms, self._journal = batch_workers, terms, journal
        handlers = {
            DataMessageKind.JOIN: self._join,
            DataMessageKind.LEASE: self._lease,
            DataMessageKind.PING: self._ping,
            DataMessageKind.GOODBYE: self._goodbye,
        }
        self._requests = RequestServer(channel, WIRE, journal.refused, handlers)
        self._sessions: dict[bytes, Session] = {}
        self._sending: deque[tuple[Sent, int]] = deque()  # pixels that zmq has not sent yet
        self._connections = Connections(journal.refused)

    @property
    def sending(self) -> bool:
        """Whether pixels are still on their way out."""
        return bool(self._sending)

    def handle(self, frames: list[Any]) -> None:
        """One message, as zmq frames."""
        self._connections.heard(self._requests.handle(frames))

    def disconnected(self, descriptor: int) -> None:
        self._connections.ended(descriptor)

    def finish(self, done: FinishedBatch) -> None:
        """Send a batch, unless its trainer no longer waits for it."""
        request, session = done.request, done.request.session
        if self._sessions.get(session.identity) is not session:
            self._journal.dropped += 1
            self._batch_workers.sent(done.num_bytes)
            return
        slot = request.slot if done.error is None and done.pixels is None else NO_SLOT
        kind = DataMessageKind.BATCH if done.error is None else DataMessageKind.TROUBLE
        header = self._with_status(Header(kind, session.number, request.number, slot, length=done.length))
        if done.error is not None:
            self._requests.send(session.identity, header, pack_error(done.error))
        elif done.pixels is None:
            self._requests.send(session.identity, header, done.control)
        else:
            pixels = memory.raw(done.pixels)
            tracker = self._requests.send_tracked(session.identity, header, done.control, pixels)
            self._sending.append((tracker, done.num_bytes))

    def tick(self) -> None:
        """Every so often: count what was sent, and forget trainers whose process has ended."""
        while self._sending and self._sending[0][0].done:
            self._batch_workers.sent(self._sending.popleft()[1])
        for identity, session in list(self._sessions.items()):
            if session.ended:
                self._forget(identity, "has ended")
        workers = self._batch_workers
        self._journal.look(workers.samples, workers.idle_s(), workers.waiting, len(self._sessions))

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _join(self, request: PeerRequest[Header]) -> None:
        joined = self._sessions.get(request.identity)
        if joined is not None and joined.number == request.header.session:
            return self._welcome(request, joined)  # it asks again: the reply was lost, or late
        sent = from_json(request.message.control)
        if not isinstance(expected := sent.get("terms"), dict):
            raise Refused("garbage")
        session = Session.of(request.header.session, request.identity, sent)
        self._forget(request.identity, "joins again")
        if differs := difference(expected, self._terms):
            session.close()
            self._journal.note("unfit", f"{session.name} expects other batches: {differs}", trainer=session.name)
            return self._reply(request, DataMessageKind.UNFIT, as_json({"why": differs}))
        self._sessions[request.identity] = session
        shared = session.area is not None
        by = "shared memory" if shared else "the network"
        self._journal.note("join", f"{session.name} joins, by {by}", trainer=session.name, shared_memory=shared)
        return self._welcome(request, session)

    def _welcome(self, request: PeerRequest[Header], session: Session) -> None:
        self._reply(request, DataMessageKind.WELCOME, as_json({"shared": session.area is not None}))

    def _lease(self, request: PeerRequest[Header]) -> None:
        header, session = request.header, self._sessions.get(request.identity)
        if session is None or session.number != header.session:
            return self._reply(request, DataMessageKind.UNKNOWN)
        repeats = self._terms.get("data.sampling", "shuffle") != "shuffle"
        work = unpack_lease(request.message.control, self._terms["training samples"], repeats=repeats)
        if work.total * self._terms["image size"] ** 2 * self._terms["channels"] > MAX_MESSAGE_BYTES:
            raise Refused("length")
        place = session.place(header.slot)
        return self._batch_workers.add(BatchRequest(session, header.number, work, header.slot, place))

    def _ping(self, request: PeerRequest[Header]) -> None:
        pong = self._with_status(request.header.reply(DataMessageKind.PONG))
        self._requests.send(request.identity, pong)

    def _goodbye(self, request: PeerRequest[Header]) -> None:
        self._forget(request.identity, "said goodbye")

    def _forget(self, identity: bytes, why: str) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            session.close()
            self._batch_workers.forget(session)
            self._journal.note("leave", f"{session.name} {why}", trainer=session.name, why=why)

    def _reply(self, request: PeerRequest[Header], kind: DataMessageKind, control: bytes = b"") -> None:
        self._requests.send(request.identity, request.header.reply(kind), control)

    def _with_status(self, header: Header) -> Header:
        """With this server's load, which trainers report in their events."""
        return replace(header, queue=self._batch_workers.waiting, rate=self._journal.rate, idle=self._journal.idle)
