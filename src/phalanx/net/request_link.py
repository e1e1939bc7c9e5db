"""A client's connection to a server that works for it: joining it, and noticing its loss. Nothing here waits."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.errors import UserError
from phalanx.net.client_channel import ClientChannel
from phalanx.net.control import Refused, from_json
from phalanx.net.encryption import Encrypt, encrypts
from phalanx.net.key import key_for
from phalanx.net.messages import Buffer, Message, SessionHeader, Wire

_JOIN_S = 1.0  # between tries to join
_LINGER_MS = 200  # for the last message to be sent
_PING_S = 1.0  # of silence, after which the link asks whether the server lives
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
_OPTIONS: dict[zmq.SocketOption, int | bytes] = {
    zmq.SNDHWM: 64,  # messages to a server that does not read them
    zmq.RCVHWM: 0,
    zmq.IMMEDIATE: 1,  # nothing is kept for a server that is not there
    zmq.RECONNECT_IVL_MAX: 2000,
}

H = TypeVar("H", bound=SessionHeader)
T = TypeVar("T")  # what the server makes


class RequestLink(ABC, Generic[H, T]):
    """The state of one connection. `receive` and `attend` move it on; `notify` gets news for the user."""

    server: str  # what the server is called, such as "data server"
    other: str  # what one that is not used would do, such as "make other batches"
    units: str  # what it owes, such as "batches"

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        wire: Wire[H],
        notify: Callable[[str], None],
        encrypt: Encrypt,
    ) -> None:
        self.address, self._wire, self._notify = address, wire, notify
        self.joined, self._connected, self._refused = False, False, False
        self.unfit: str | None = None  # why what the server makes would be something else
        self._session, self._join_at = 0, 0.0
        self._quiet_s = self._asked_s = 0.0
        key = key_for([address], key)
        self.channel = ClientChannel(context, address, key, encrypt=encrypts(encrypt, address), options=_OPTIONS)
        # Before it connects: otherwise the first event might be missed.
        self.monitor = self.channel.socket.get_monitor_socket(_EVENTS)
        self.channel.connect(self.server, "HOST:PORT, tcp://HOST:PORT or ipc:///PATH")

    @property
    def state(self) -> str:
        """For messages and events: how the server's work arrives, or why none does."""
        if self.unfit is not None:
            return f"would {self.other}: {self.unfit}"
        if at_work := self._at_work():
            return at_work
        if self._connected or self._refused:
            return "listens and does not answer (has it another PHALANX_KEY?)"
        return "nobody listens"

    def attend(self, elapsed_s: float, patience_s: float) -> None:
        """Do what is due: join, ping, give the server up. `elapsed_s` was spent listening since the last call."""
        now = time.monotonic()
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if event != zmq.EVENT_DISCONNECTED:
                self._refused = not self._connected
            else:
                self.unfit, self._join_at = None, 0.0  # the next server at this address may be another
                self._lose("disconnected")
        if self._may_join and self.unfit is None and self._connected and now >= self._join_at:
            self._join_at = now + _JOIN_S
            self._join()
        if self._awaits_reply:
            self._quiet_s += elapsed_s
            self._asked_s += elapsed_s
            if self._quiet_s > patience_s:
                self._lose(f"has been silent for {patience_s:g} s")
            elif self._asked_s > _PING_S:
                self._asked_s = 0.0
                self._send(self._header("PING"))

    def receive(self) -> Iterator[tuple[int, T | UserError]]:
        """What has arrived: numbers of requests with what was made, or with the reason why it cannot be made."""
        while True:
            try:
                message = self._wire.unpack(self.channel.recv_multipart())
                if message.header.session != self._session:
                    self._too_late(message.header)
                    continue
                self._quiet_s = 0.0
                made = self._handle(message)
            except zmq.Again:
                return
            except Refused as refused:
                self._lose(f"sent a message that cannot be used ({refused.reason})")
                continue
            if made is not None:
                yield message.header.number, made

    def close(self) -> None:
        if self.joined:
            self._send(self._header("GOODBYE"))
        self.channel.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.channel.close(linger=_LINGER_MS)

    @property
    @abstractmethod
    def _owed(self) -> Collection[int]:
        """Numbers of the requests to which the server has not replied."""

    @property
    def _may_join(self) -> bool:
        return not self.joined

    @property
    def _awaits_reply(self) -> bool:
        """Whether silence tells something."""
        return self.joined and bool(self._owed)

    @abstractmethod
    def _at_work(self) -> str:
        """How its work arrives; empty while none does."""

    @abstractmethod
    def _join(self) -> None:
        """Ask to join."""

    @abstractmethod
    def _handle(self, message: Message[H]) -> T | UserError | None:
        """A message of this session."""

    @abstractmethod
    def _end_session(self) -> None:
        """Forget what belongs to it."""

    def _too_late(self, header: H) -> None:
        """A message of a session that we had given up: another server has got its work."""

    def _not_used(self, message: Message[H]) -> None:
        """The server has said that it would do something else."""
        self.unfit = str(from_json(message.control).get("why"))
        self._notify(f"the {self.server} at {self.address} would {self.other}, and is not used: {self.unfit}")

    def _lose(self, why: str) -> None:
        """End the session: what it owes goes to others, and what still arrives is dropped. It may join again."""
        if self.joined:
            owed = f"; {len(self._owed)} {self.units} that it owes go to others" if self._owed else ""
            self._notify(f"the {self.server} at {self.address} {why}{owed}")
        self._end_session()
        self.joined, self._session = False, 0

    def _request(self, header: H, control: bytes, body: Buffer | None = None) -> bool:
        """Ask for something. False if the server cannot be reached."""
        if not self._send(header, control, body):
            self._lose("cannot be reached")
            return False
        if not self._owed:
            self._quiet_s = self._asked_s = 0.0
        return True

    def _header(self, kind: str, number: int = 0) -> H:
        return self._wire.header(self._wire.kinds[kind], session=self._session, number=number)

    def _send(self, header: H, control: bytes = b"", body: Buffer | None = None) -> bool:
        try:
            self.channel.send_multipart(self._wire.frames(header, control, body), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
