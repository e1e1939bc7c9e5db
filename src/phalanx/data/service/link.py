"""A trainer's connection to one data server: leasing batches, and where their pixels arrive. Nothing here waits."""

import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
import zmq

from phalanx.data.base import MicroBatch
from phalanx.data.order import Work
from phalanx.data.service.body import Bad, pack_lease, unpack_batch
from phalanx.data.service.slots import Slots
from phalanx.data.service.terms import Terms
from phalanx.data.service.wire import NO_SLOT, WIRE, DataMessage, DataMessageKind, Header
from phalanx.errors import UserError
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.encryption import Encrypt
from phalanx.net.messages import unpack_error
from phalanx.net.request_link import RequestLink


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


class Link(RequestLink[Header, MadeBatch]):
    """A connection to a data server."""

    server, other, units = "data server", "make other batches", "batches"

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
        self.window, self._terms, self._name, self._slot_bytes = window, terms, name, slot_bytes
        self.owed: dict[int, Owed] = {}  # by the lease's number
        self.queued = 0  # batches that have arrived and that the trainer has not taken
        self.lost = False  # whether a session has ended since the scheduler looked
        self.samples = self.late = 0
        self.pace_s = 0.0  # seconds that a batch takes, lately
        self.status = Header(DataMessageKind.PONG)  # the server's load, as it last said
        self._replied = 0.0
        self.slots: Slots | None = None
        self._offered: Slots | None = None  # to a server that has not said yet whether it can use them
        super().__init__(context, address, key, WIRE, notify, encrypt)

    @property
    def room(self) -> bool:
        """Whether another batch may be leased: what this server makes ahead is bounded."""
        return self.joined and len(self.owed) + self.queued < self.window

    def owes_for(self, number: int) -> float:
        """For how many seconds it has owed a batch."""
        return time.monotonic() - self.owed[number].since if number in self.owed else 0.0

    def lease(self, number: int, work: Work) -> bool:
        """Ask for a batch. False if the server cannot be reached."""
        slot = self.slots.take() if self.slots is not None else None
        header = replace(self._header("LEASE", number), slot=NO_SLOT if slot is None else slot)
        if not self._request(header, pack_lease(work)):
            return False
        self.owed[number] = Owed(slot, work.samples, time.monotonic())
        return True

    def close(self) -> None:
        self._withdraw()
        super().close()

    @property
    def _owed(self) -> Collection[int]:
        return self.owed

    def _at_work(self) -> str:
        if not self.joined:
            return ""
        return "shared memory" if self.slots is not None else "network"

    def _too_late(self, header: Header) -> None:
        self.late += header.kind is DataMessageKind.BATCH

    def _handle(self, message: DataMessage) -> MadeBatch | UserError | None:
        match message.header.kind:
            case DataMessageKind.WELCOME:
                if not self.joined:
                    self._welcome(bool(from_json(message.control).get("shared")))
            case DataMessageKind.UNFIT:
                self._withdraw()
                self._session = 0
                self._not_used(message)
            case DataMessageKind.UNKNOWN:
                self._lose("was started anew")
            case DataMessageKind.PONG:
                self.status = message.header
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
        self._send(self._header("JOIN"), as_json({"name": self._name, "terms": self._terms, **area}))

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

    def _end_session(self) -> None:
        self.lost = self.lost or self.joined
        self.owed.clear()
        self.slots = None  # a new session has new memory: the server may still write to this one
        self._withdraw()
