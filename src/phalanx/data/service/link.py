"""A trainer's connection to one data server: joining it, leasing batches, and noticing its loss. Nothing here waits."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.data.base import MicroBatch
from phalanx.data.order import Work
from phalanx.data.service.body import Bad, pack_lease, unpack_batch
from phalanx.data.service.slots import Slots
from phalanx.data.service.terms import Terms
from phalanx.data.service.wire import NO_SLOT, WIRE, DataMessage, DataMessageKind, Header
from phalanx.errors import UserError
from phalanx.net.client_channel import ClientChannel
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.encryption import Encrypt, encrypts
from phalanx.net.key import key_for
from phalanx.net.messages import unpack_error

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


@dataclass
class MadeBatch:
    """A batch, the server that made it, and the shared memory that its pixels lie in, if any."""

    micro: list[MicroBatch]
    bad: Bad
    link: "Link | None" = None
    slots: Slots | None = None

    def hand_out(self) -> list[MicroBatch]:
        """The micro-batches, which the trainer may keep for as long as it likes."""
        if self.link is not None:
            self.link.queued -= 1
        if self.slots is None or self.slots.hand_out():
            return self.micro
        return [replace(micro, images=micro.images.clone()) for micro in self.micro]


@dataclass
class Owed:
    """A lease to which the server has not replied."""

    slot: int | None
    samples: int
    since: float


class Link:
    """The state of one connection. `receive` and `attend` move it on; `notify` gets news for the user."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        terms: Terms,
        name: str,
        window: int,
        slot_bytes: int,
        notify: Callable[[str], None],
        encrypt: Encrypt = "auto",
    ) -> None:
        self.address, self.window, self._notify = address, window, notify
        key = key_for([address], key)
        self._terms, self._name, self._slot_bytes = terms, name, slot_bytes
        self.owed: dict[int, Owed] = {}  # by the lease's number
        self.queued = 0  # batches that have arrived and that the trainer has not taken
        self.joined, self.connected, self._refused = False, False, False
        self.unfit: str | None = None  # why the server would make other batches
        self.lost = False  # whether a session has ended since the scheduler looked
        self.samples = self.late = 0
        self.pace_s = 0.0  # seconds that a batch takes, lately
        self.status = Header(DataMessageKind.PONG)  # the server's load, as it last said
        self._session, self._join_at = 0, 0.0
        self._quiet_s = self._asked_s = self._replied = 0.0
        self.slots: Slots | None = None
        self._offered: Slots | None = None  # to a server that has not said yet whether it can use them
        self.channel = ClientChannel(context, address, key, encrypt=encrypts(encrypt, address), options=_OPTIONS)
        # Before it connects: otherwise the first event might be missed.
        self.monitor = self.channel.socket.get_monitor_socket(_EVENTS)
        self.channel.connect("data server", "HOST:PORT, tcp://HOST:PORT or ipc:///PATH")

    @property
    def room(self) -> bool:
        """Whether another batch may be leased: what this server makes ahead is bounded."""
        return self.joined and len(self.owed) + self.queued < self.window

    @property
    def state(self) -> str:
        """For messages and events: how batches arrive, or why none do."""
        if self.unfit is not None:
            return f"would make other batches: {self.unfit}"
        if self.joined:
            return "shared memory" if self.slots is not None else "network"
        if self.connected or self._refused:
            return "listens and does not answer (has it another PHALANX_KEY?)"
        return "nobody listens"

    def owes_for(self, number: int) -> float:
        """For how many seconds it has owed a batch."""
        return time.monotonic() - self.owed[number].since if number in self.owed else 0.0

    def lease(self, number: int, work: Work) -> bool:
        """Ask for a batch. False if the server cannot be reached."""
        slot = self.slots.take() if self.slots is not None else None
        header = Header(DataMessageKind.LEASE, NO_SLOT if slot is None else slot, self._session, number)
        if not self._send(header, pack_lease(work)):
            self._lose("cannot be reached")
            return False
        if not self.owed:
            self._quiet_s = self._asked_s = 0.0
        self.owed[number] = Owed(slot, work.samples, time.monotonic())
        return True

    def attend(self, elapsed_s: float, patience_s: float) -> None:
        """Do what is due: join, ping, give the server up. `elapsed_s` was spent listening since the last call."""
        now = time.monotonic()
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if event != zmq.EVENT_DISCONNECTED:
                self._refused = not self.connected
            elif not self.connected:
                self.unfit, self._join_at = None, 0.0  # the next server at this address may be another
                self._lose("disconnected")
        if not self.joined and self.unfit is None and self.connected and now >= self._join_at:
            self._join_at = now + _JOIN_S
            self._join()
        if self.joined and self.owed:
            self._quiet_s += elapsed_s
            self._asked_s += elapsed_s
            if self._quiet_s > patience_s:
                self._lose(f"has been silent for {patience_s:g} s")
            elif self._asked_s > _PING_S:
                self._asked_s = 0.0
                self._send(Header(DataMessageKind.PING, session=self._session))

    def receive(self) -> Iterator[tuple[int, MadeBatch | UserError]]:
        """What has arrived: numbers of leases with their batches, or with the reason why they cannot be made."""
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
        self._withdraw()
        if self.joined:
            self._send(Header(DataMessageKind.GOODBYE, session=self._session))
        self.channel.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.channel.close(linger=_LINGER_MS)

    def _handle(self, message: DataMessage) -> MadeBatch | UserError | None:
        header = message.header
        if header.session != self._session:
            self.late += header.kind is DataMessageKind.BATCH  # of a session that we had given up
            return None
        self._quiet_s = 0.0
        match header.kind:
            case DataMessageKind.WELCOME:
                if not self.joined:
                    self._welcome(bool(from_json(message.control).get("shared")))
            case DataMessageKind.UNFIT:
                self._withdraw()
                self._session = 0
                self.unfit = str(from_json(message.control).get("why"))
                self._notify(
                    f"the data server at {self.address} would make other batches, and is not used: {self.unfit}"
                )
            case DataMessageKind.UNKNOWN:
                self._lose("was started anew")
            case DataMessageKind.PONG:
                self.status = header
            case DataMessageKind.BATCH | DataMessageKind.TROUBLE:
                return self._outcome(message)
            case _:
                raise Refused("kind")
        return None

    def _join(self) -> None:
        """Ask to join: the same until there is a reply, so that a late one counts and a lost one costs nothing."""
        if self._offered is None:
            self._session = secrets.randbits(62) + 1
            self._offered = Slots(self.window, self._slot_bytes)
        area = {"area": self._offered.area.address, "slot_bytes": self._slot_bytes}
        joining = as_json({"name": self._name, "terms": self._terms, **area})
        self._send(Header(DataMessageKind.JOIN, session=self._session), joining)

    def _welcome(self, shared: bool) -> None:
        self.joined = True
        self.slots = self._offered if shared else None
        self._withdraw()
        self._notify(f"the data server at {self.address} joined, by {'shared memory' if shared else 'the network'}")

    def _withdraw(self) -> None:
        """Let no server attach to the memory that was offered; one that has attached keeps it."""
        if self._offered is not None:
            self._offered.area.close()
            self._offered = None

    def _outcome(self, message: DataMessage) -> MadeBatch | UserError:
        """The reply to a lease."""
        header = message.header
        owed = self.owed.pop(header.number, None)
        if owed is None or (header.slot != NO_SLOT and header.slot != owed.slot):
            raise Refused("lease")
        if self.slots is not None and owed.slot is not None and header.slot == NO_SLOT:
            self.slots.put_back(owed.slot)
        now = time.monotonic()
        took_s, self._replied = now - max(owed.since, self._replied), now
        self.pace_s = took_s if self.pace_s == 0 else 0.8 * self.pace_s + 0.2 * took_s
        self.status = header
        if header.kind is DataMessageKind.TROUBLE:
            return unpack_error(message.control)
        slots = self.slots if header.slot != NO_SLOT else None
        if slots is not None:
            pixels = slots.pixels(header.slot, header.length)
        elif message.body is not None:
            pixels = torch.frombuffer(message.body, dtype=torch.uint8)
        else:
            raise Refused("length")
        micro, bad = unpack_batch(message.control, pixels)
        self.samples += owed.samples
        self.queued += 1
        return MadeBatch(micro, bad, self, slots)

    def _lose(self, why: str) -> None:
        """End the session: its leases are free for others, and what still arrives is dropped. It may join again."""
        if self.joined:
            self.lost = True
            owed = f"; {len(self.owed)} batches that it owes go to others" if self.owed else ""
            self._notify(f"the data server at {self.address} {why}{owed}")
        self.joined, self._session = False, 0
        self.owed.clear()
        self.slots = None  # a new session has new memory: the server may still write to this one
        self._withdraw()

    def _send(self, header: Header, control: bytes = b"") -> bool:
        try:
            self.channel.send_multipart(WIRE.frames(header, control), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
