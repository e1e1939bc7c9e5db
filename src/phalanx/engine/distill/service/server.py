"""A teacher process: trainers join, send views and get logits. It has nothing that could be lost."""

from typing import Any

from phalanx.data.service.journal import Journal
from phalanx.engine.distill.service.body import unpack_view
from phalanx.engine.distill.service.logits_worker import FinishedTask, LogitsWorker, Session, Task
from phalanx.engine.distill.service.terms import JoinTerms
from phalanx.engine.distill.service.wire import WIRE, Header, TeacherMessageKind
from phalanx.errors import UserError
from phalanx.net.control import as_json, from_json
from phalanx.net.messages import pack_error
from phalanx.net.request_server import Connections, PeerRequest, RequestServer
from phalanx.net.server_channel import ServerChannel

_MOST_SESSIONS = 1000  # the oldest are forgotten; a trainer that still needs one joins again


class Server:
    """The sessions of one teacher process. `handle` takes one message, and never raises because of it."""

    def __init__(self, channel: ServerChannel, worker: LogitsWorker, journal: Journal) -> None:
        self._worker, self._journal = worker, journal
        handlers = {
            TeacherMessageKind.JOIN: self._join,
            TeacherMessageKind.VIEW: self._view,
            TeacherMessageKind.PING: self._ping,
            TeacherMessageKind.GOODBYE: self._goodbye,
        }
        self._requests = RequestServer(channel, WIRE, journal.refused, handlers)
        self._sessions: dict[bytes, Session] = {}
        self._connections = Connections(journal.refused)

    def handle(self, frames: list[Any]) -> None:
        """One message, as zmq frames."""
        self._connections.heard(self._requests.handle(frames))

    def disconnected(self, descriptor: int) -> None:
        self._connections.ended(descriptor)

    def finish(self, done: FinishedTask) -> None:
        """Send what a trainer waits for, unless it has left or joined again."""
        task, session = done.task, done.task.session
        if self._sessions.get(session.identity) is not session:
            self._journal.dropped += 1
            return
        if task.view is None:
            self._welcome(session, done.error)
        elif done.error is not None:
            self._send(session, TeacherMessageKind.TROUBLE, task.number, pack_error(done.error))
        else:
            self._send(session, TeacherMessageKind.LOGITS, task.number, done.control, done.body)

    def tick(self) -> None:
        """Every so often: what was done so far."""
        self._journal.look(self._worker.samples, self._worker.idle_s(), self._worker.waiting, len(self._sessions))

    def _join(self, request: PeerRequest[Header]) -> None:
        session = Session(request.header.session, request.identity, JoinTerms.read(from_json(request.message.control)))
        self._forget(request.identity, "joins again")
        while len(self._sessions) >= _MOST_SESSIONS:
            self._forget(next(iter(self._sessions)), "is forgotten: there are many others")
        self._sessions[request.identity] = session
        if differs := session.terms.other_code():
            self._unfit(session, differs)
        else:
            self._worker.add(Task(session))

    def _welcome(self, session: Session, error: UserError | None) -> None:
        if error is not None:
            self._unfit(session, f"{error.what}: {error.why}")
            return
        name = session.terms.name
        self._journal.note("join", f"{name} joins", trainer=name)
        self._send(session, TeacherMessageKind.WELCOME)

    def _unfit(self, session: Session, why: str) -> None:
        name = session.terms.name
        self._journal.note("unfit", f"{name} expects other logits: {why}", trainer=name)
        self._send(session, TeacherMessageKind.UNFIT, control=as_json({"why": why}))
        self._sessions.pop(session.identity, None)

    def _view(self, request: PeerRequest[Header]) -> None:
        header, session = request.header, self._session_of(request)
        if session is None:
            self._requests.send(request.identity, header.reply(TeacherMessageKind.UNKNOWN))
            return
        self._worker.add(Task(session, header.number, unpack_view(request.message.control, request.message.body)))

    def _ping(self, request: PeerRequest[Header]) -> None:
        known = self._session_of(request) is not None  # a JOIN may be lost: it is asked by pings whether it was not
        kind = TeacherMessageKind.PONG if known else TeacherMessageKind.UNKNOWN
        self._requests.send(request.identity, request.header.reply(kind))

    def _session_of(self, request: PeerRequest[Header]) -> Session | None:
        session = self._sessions.get(request.identity)
        return session if session is not None and session.number == request.header.session else None

    def _goodbye(self, request: PeerRequest[Header]) -> None:
        self._forget(request.identity, "said goodbye")

    def _forget(self, identity: bytes, why: str) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            self._worker.forget(session)
            self._journal.note("leave", f"{session.terms.name} {why}", trainer=session.terms.name, why=why)

    def _send(
        self,
        session: Session,
        kind: TeacherMessageKind,
        number: int = 0,
        control: bytes = b"",
        body: bytes | None = None,
    ) -> None:
        self._requests.send(session.identity, Header(kind, session.number, number), control, body)
