"""One data server, as one trainer sees it: joined, leased to, lost and found again. Nothing here waits."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.data.base import MicroBatch
from phalanx.data.order import Work
from phalanx.data.service.body import Bad, pack_lease, unpack_batch
from phalanx.data.service.slots import Slots
from phalanx.data.service.terms import Terms
from phalanx.data.service.wire import NO_SLOT, DataMessageKind, Header, Message, Seal
from phalanx.errors import UserError
from phalanx.net.seal import MAX_MESSAGE_BYTES, Refused, as_json, from_json

_HELLO_S = 1.0  # between tries to join
_PING_S = 1.0  # of silence, after which a server is asked whether it lives
_MOST_QUEUED = 64  # messages to a server that does not read them


@dataclass
class Made:
    """A batch, the server that made it, and the memory that its pixels lie in if that is shared."""

    micro: list[MicroBatch]
    bad: Bad
    link: "Link | None" = None
    slots: Slots | None = None

    def handed_out(self) -> list[MicroBatch]:
        """The micro-batches, for the trainer to keep for as long as it likes."""
        if self.link is not None:
            self.link.queued -= 1
        if self.slots is None or self.slots.hand_out():
            return self.micro
        return [replace(micro, images=micro.images.clone()) for micro in self.micro]


@dataclass
class Owed:
    """A lease that the server has not answered."""

    slot: int | None
    samples: int
    since: float


class Link:
    """The state of one connection. `receive` and `attend` move it on; `tell` hears of what a user should know."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        key: str,
        terms: Terms,
        name: str,
        window: int,
        slot_bytes: int,
        tell: Callable[[str], None],
    ) -> None:
        self.address, self.window, self._tell = address, window, tell
        self._seal, self._terms, self._name, self._slot_bytes = Seal(key), terms, name, slot_bytes
        self.owed: dict[int, Owed] = {}
        self.queued = 0  # batches that have arrived and not been handed out
        self.joined, self.connected = False, False
        self.unfit: str | None = None  # why the server would make other batches
        self.lost = False  # whether a session has ended since somebody looked
        self.samples = self.late = 0
        self.pace_s = 0.0  # seconds that a batch takes, lately
        self.status = Header(DataMessageKind.PONG)  # how the server fares, as it last said
        self._session, self._hellos, self._hello_at = 0, 0, 0.0
        self._quiet_s = self._asked_s = self._answered = 0.0
        self.slots: Slots | None = None
        self._offered: Slots | None = None  # to a server that has not said yet whether it can use them
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, _MOST_QUEUED)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is kept for a server that is not there
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        self.socket.setsockopt(zmq.IPV6, "[" in address)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            raise UserError(
                f"{address} is not the address of a data server",
                why=str(error),
                remedy="write it as HOST:PORT, tcp://HOST:PORT or ipc:///PATH",
            ) from error

    @property
    def room(self) -> bool:
        """Whether another batch may be leased: what this server makes ahead is bounded."""
        return self.joined and len(self.owed) + self.queued < self.window

    @property
    def whereabouts(self) -> str:
        if self.unfit is not None:
            return f"would make other batches: {self.unfit}"
        if self.joined:
            return "shared memory" if self.slots is not None else "network"
        return "listens and does not answer (has it another PHALANX_KEY?)" if self.connected else "nobody listens"

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
        """What time asks for. `elapsed_s` is how long we have listened since the last call."""
        now = time.monotonic()
        while self.monitor.poll(0):
            self.connected = recv_monitor_message(self.monitor)["event"] != zmq.EVENT_DISCONNECTED
            if not self.connected:
                self.unfit, self._hello_at = None, 0.0  # who comes back may be another
                self._lose("hung up")
        if not self.joined and self.unfit is None and self.connected and now >= self._hello_at:
            self._hello_at = now + _HELLO_S
            self._hellos += 1
            self._send(Header(DataMessageKind.HELLO, number=self._hellos))
        if self.joined and self.owed:
            self._quiet_s += elapsed_s
            self._asked_s += elapsed_s
            if self._quiet_s > patience_s:
                self._lose(f"has been silent for {patience_s:g} s")
            elif self._asked_s > _PING_S:
                self._asked_s = 0.0
                self._send(Header(DataMessageKind.PING, session=self._session))

    def receive(self) -> Iterator[tuple[int, Made | UserError]]:
        """What has arrived: numbers of leases with their batches, or with the reason why they cannot be made."""
        while True:
            try:
                message = self._seal.unpack(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
                answer = self._answer(message)
            except zmq.Again:
                return
            except Refused as refused:
                self._lose(f"sent what cannot be used ({refused.reason})")
                continue
            if answer is not None:
                yield message.header.number, answer

    def close(self) -> None:
        self._withdraw()
        if self.joined:
            self._send(Header(DataMessageKind.GOODBYE, session=self._session))

    def _answer(self, message: Message) -> Made | UserError | None:
        header = message.header
        if header.kind is DataMessageKind.CHALLENGE:
            if header.number == self._hellos and not self.joined:
                self._join(from_json(message.told).get("nonce"))
            return None
        if header.session != self._session:
            self.late += header.kind is DataMessageKind.BATCH  # of a session that we had given up
            return None
        self._quiet_s = 0.0
        match header.kind:
            case DataMessageKind.WELCOME:
                self._welcome(bool(from_json(message.told).get("shared")))
            case DataMessageKind.UNFIT:
                self._withdraw()
                self.unfit = str(from_json(message.told).get("why"))
                self._tell(f"the data server at {self.address} would make other batches, and is not used: {self.unfit}")
            case DataMessageKind.UNKNOWN:
                self._lose("was started anew")
            case DataMessageKind.PONG:
                self.status = header
            case DataMessageKind.BATCH | DataMessageKind.TROUBLE:
                return self._outcome(message)
            case _:
                raise Refused("kind")
        return None

    def _join(self, nonce: Any) -> None:
        self._withdraw()
        self._session = secrets.randbits(63)
        self._offered = Slots(self.window, self._slot_bytes)
        told = {"nonce": nonce, "name": self._name, "terms": self._terms}
        told |= {"area": self._offered.area.address, "slot_bytes": self._slot_bytes}
        self._send(Header(DataMessageKind.JOIN, session=self._session), as_json(told))

    def _welcome(self, shared: bool) -> None:
        self.joined = True
        self.slots = self._offered if shared else None
        self._withdraw()
        self._tell(f"the data server at {self.address} joined, by {'shared memory' if shared else 'the network'}")

    def _withdraw(self) -> None:
        """Whoever was offered shared memory has it now, or will not."""
        if self._offered is not None:
            self._offered.area.close()
            self._offered = None

    def _outcome(self, message: Message) -> Made | UserError:
        """The answer to a lease."""
        header = message.header
        owed = self.owed.pop(header.number, None)
        if owed is None or (header.slot != NO_SLOT and header.slot != owed.slot):
            raise Refused("lease")
        if self.slots is not None and owed.slot is not None and header.slot == NO_SLOT:
            self.slots.put_back(owed.slot)
        now = time.monotonic()
        took_s, self._answered = now - max(owed.since, self._answered), now
        self.pace_s = took_s if self.pace_s == 0 else 0.8 * self.pace_s + 0.2 * took_s
        self.status = header
        if header.kind is DataMessageKind.TROUBLE:
            told = from_json(message.told)
            return UserError(str(told.get("what")), why=str(told.get("why")), remedy=str(told.get("remedy")))
        slots = self.slots if header.slot != NO_SLOT else None
        if slots is not None:
            pixels = slots.pixels(header.slot, header.length)
        elif message.body is not None:
            pixels = torch.frombuffer(message.body, dtype=torch.uint8)
        else:
            raise Refused("length")
        micro, bad = unpack_batch(message.told, pixels)
        self.samples += owed.samples
        self.queued += 1
        return Made(micro, bad, self, slots)

    def _lose(self, why: str) -> None:
        """What the server owes is owed no more; what it still sends is dropped. It may join again."""
        if self.joined:
            self.lost = True
            owed = f"; {len(self.owed)} batches that it owes go to others" if self.owed else ""
            self._tell(f"the data server at {self.address} {why}{owed}")
        self.joined, self._session = False, 0
        self.owed.clear()
        self.slots = None  # a new session has new memory: who knows what is still written to this one
        self._withdraw()

    def _send(self, header: Header, told: bytes = b"") -> bool:
        try:
            self.socket.send_multipart(self._seal.frames(header, told), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
