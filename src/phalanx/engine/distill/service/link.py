"""A trainer's connection to one teacher process: joining it, asking for logits, noticing its loss. Nothing waits."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zmq
from torch import Tensor
from zmq.utils.monitor import recv_monitor_message

from phalanx.engine.distill.service.body import unpack_logits
from phalanx.engine.distill.service.wire import WIRE, Header, TeacherMessage, TeacherMessageKind
from phalanx.errors import UserError
from phalanx.net.client_channel import ClientChannel
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.encryption import Encrypt, encrypts
from phalanx.net.key import key_for
from phalanx.net.messages import Buffer, unpack_error

_JOIN_S = 1.0  # between tries to join
_LINGER_MS = 200  # for the last message to be sent
_PING_S = 1.0  # of silence, after which the link asks whether the process lives
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
_OPTIONS: dict[zmq.SocketOption, int | bytes] = {
    zmq.SNDHWM: 64,  # messages to a process that does not read them
    zmq.RCVHWM: 0,
    zmq.IMMEDIATE: 1,  # nothing is kept for a process that is not there
    zmq.RECONNECT_IVL_MAX: 2000,
}


class Link:
    """The state of one connection. `receive` and `attend` move it on; `notify` gets news for the user."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        terms: Mapping[str, Any],
        notify: Callable[[str], None],
        encrypt: Encrypt = "auto",
    ) -> None:
        """`terms` say which teachers and what views: what a JOIN has."""
        self.address, self._terms, self._notify = address, terms, notify
        key = key_for([address], key)
        self.owed: set[int] = set()  # numbers of the requests that the process has not answered
        self.joined, self._connected, self._refused = False, False, False
        self.unfit: str | None = None  # why the process would compute other logits
        self._session, self._join_at = 0, 0.0
        self.loading = False  # whether the process loads the teachers, which may take long
        self._quiet_s = self._asked_s = 0.0
        self.channel = ClientChannel(context, address, key, encrypt=encrypts(encrypt, address), options=_OPTIONS)
        # Before it connects: otherwise the first event might be missed.
        self.monitor = self.channel.socket.get_monitor_socket(_EVENTS)
        self.channel.connect("teacher", "HOST:PORT, tcp://HOST:PORT or ipc:///PATH")

    @property
    def state(self) -> str:
        """For messages: why no logits come from there, or that they do."""
        if self.unfit is not None:
            return f"would compute other logits: {self.unfit}"
        if self.joined:
            return "answers"
        if self.loading:
            return "loads the teachers"
        if self._connected or self._refused:
            return "listens and does not answer (has it another PHALANX_KEY?)"
        return "nobody listens"

    def ask(self, number: int, control: bytes, body: Buffer) -> bool:
        """Ask for the logits of a view. False if the process cannot be reached."""
        if not self._send(Header(TeacherMessageKind.VIEW, self._session, number), control, body):
            self._lose("cannot be reached")
            return False
        if not self.owed:
            self._quiet_s = self._asked_s = 0.0
        self.owed.add(number)
        return True

    def attend(self, elapsed_s: float, patience_s: float) -> None:
        """Do what is due: join, ping, give the process up. `elapsed_s` was spent listening since the last call."""
        now = time.monotonic()
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if event != zmq.EVENT_DISCONNECTED:
                self._refused = not self._connected
            else:
                self.unfit, self._join_at, self.loading = None, 0.0, False  # the next one here may be another
                self._lose("disconnected")
        waits = self.joined or self.loading
        if not waits and self.unfit is None and self._connected and now >= self._join_at:
            self._join_at = now + _JOIN_S
            self._join()
        if self.loading or (self.joined and self.owed):
            self._quiet_s += elapsed_s
            self._asked_s += elapsed_s
            if self._quiet_s > patience_s:
                self._lose(f"has been silent for {patience_s:g} s")
            elif self._asked_s > _PING_S:
                self._asked_s = 0.0
                self._send(Header(TeacherMessageKind.PING, self._session))

    def receive(self) -> Iterator[tuple[int, Tensor | UserError]]:
        """What has arrived: numbers of requests with their logits, or with the reason why there are none."""
        while True:
            try:
                message = WIRE.unpack(self.channel.recv_multipart())
                outcome = self._handle(message)
            except zmq.Again:
                return
            except Refused as refused:
                self._lose(f"sent a message that cannot be used ({refused.reason})")
                continue
            if outcome is not None:
                yield message.header.number, outcome

    def close(self) -> None:
        if self.joined:
            self._send(Header(TeacherMessageKind.GOODBYE, self._session))
        self.channel.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.channel.close(linger=_LINGER_MS)

    def _handle(self, message: TeacherMessage) -> Tensor | UserError | None:
        header = message.header
        if header.session != self._session:
            return None  # of a session that we had given up: another process has got its work
        self._quiet_s = 0.0
        match header.kind:
            case TeacherMessageKind.WELCOME:
                self.joined, self.loading = True, False
                self._notify(f"the teacher at {self.address} joined")
            case TeacherMessageKind.UNFIT:
                self.loading = False
                self.unfit = str(from_json(message.control).get("why"))
                self._notify(f"the teacher at {self.address} is not used: {self.unfit}")
            case TeacherMessageKind.UNKNOWN:
                self._lose("was started anew")
            case TeacherMessageKind.PONG:
                pass
            case TeacherMessageKind.LOGITS | TeacherMessageKind.TROUBLE:
                if header.number not in self.owed:
                    raise Refused("number")
                self.owed.remove(header.number)
                if header.kind is TeacherMessageKind.TROUBLE:
                    return unpack_error(message.control)
                return unpack_logits(message.control, message.body)
            case _:
                raise Refused("kind")
        return None

    def _join(self) -> None:
        self._session, self.loading, self._quiet_s, self._asked_s = secrets.randbits(62) + 1, True, 0.0, 0.0
        self._send(Header(TeacherMessageKind.JOIN, self._session), as_json(dict(self._terms)))

    def _lose(self, why: str) -> None:
        """End the session: what it owes goes to others, and what still arrives is dropped. It may join again."""
        if self.joined:
            owed = f"; {len(self.owed)} micro-batches that it owes go to others" if self.owed else ""
            self._notify(f"the teacher at {self.address} {why}{owed}")
        self.joined, self.loading, self._session = False, False, 0
        self.owed.clear()

    def _send(self, header: Header, control: bytes = b"", body: Buffer | None = None) -> bool:
        try:
            self.channel.send_multipart(WIRE.frames(header, control, body), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
