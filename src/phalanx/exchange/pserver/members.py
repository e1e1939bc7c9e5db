"""The workers that a server knows: which are alive, and the memory that each one pushes through."""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.base import PlaceTaken
from phalanx.exchange.pserver.slices import Slice, offsets
from phalanx.exchange.pserver.wire import Header, MessageKind
from phalanx.machine.process_state import hindrance
from phalanx.net.control import Refused
from phalanx.net.shared_memory import TOKEN_BYTES, ProcessWatch


@dataclass(frozen=True)
class Loss:
    """Why a worker was taken for lost; `silence_s` where it was silent for so long."""

    why: str
    silence_s: float | None = None

    @property
    def after(self) -> str:
        """As the end of a sentence."""
        return f"after {self.silence_s:g} s of silence" if self.silence_s is not None else f"({self.why})"


@dataclass
class Member:
    """One incarnation of one worker, bound to one connection."""

    rank: int
    incarnation: int
    identity: bytes
    area: Tensor  # its gradients arrive here: memory shared with the worker, or the server's own
    shared: bool
    watch: ProcessWatch | None
    places: dict[int, int]  # by slice: where it begins in the area
    since: int = -1  # the step at which it joined the running job; -1 for a worker that began the job
    address: str = ""  # of its host, for messages; empty where it is on this one and uses no network
    decoded: dict[int, Tensor] = field(default_factory=dict)  # by slice: its gradient, flat
    gradients: dict[int, list[Tensor]] = field(default_factory=dict)  # by slice: the same, by piece
    heard: float = field(default_factory=time.monotonic)
    reducing: Header = field(default_factory=lambda: Header(MessageKind.REDUCE))  # the last sum that it asked for
    reduced: tuple[Header, bytes] | None = None  # the last sum that it got, in case it asks again
    welcome: bytes = b""  # what it was told when it joined, in case it asks again

    def slot(self, slice_: Slice) -> Tensor:
        """The slice's place in the worker's area, as bytes."""
        start = self.places[slice_.number]
        return self.area[start : start + slice_.bytes]


class Members:
    """The workers of the job. `live` are the ranks that others wait for: at first all, whether joined yet or not."""

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.lost: set[int] = set()
        self.leaving: set[int] = set()  # live, but no longer pushing
        self.left: list[int] = []  # ranks that have said goodbye
        self.by_rank: dict[int, Member] = {}
        self._given_up: dict[tuple[int, int], Loss] = {}  # by rank and incarnation: those that were taken for lost
        self._by_identity: dict[bytes, Member] = {}

    def of(self, identity: bytes, header: Header) -> Member:
        """The member that sent a message. Refuses a connection that has not joined."""
        member = self._by_identity.get(identity)
        if member is None:
            raise Refused("stranger")
        if (member.rank, member.incarnation) != (header.worker, header.incarnation):
            raise Refused("incarnation")
        member.heard = time.monotonic()
        return member

    def joined_by(self, identity: bytes, header: Header) -> Member | None:
        """The member that this very request has made already, if it was sent twice."""
        member = self._by_identity.get(identity)
        return member if member and (member.rank, member.incarnation) == (header.worker, header.incarnation) else None

    def add(self, member: Member) -> None:
        self.by_rank[member.rank] = member
        self._by_identity[member.identity] = member
        self.live.add(member.rank)
        self.lost.discard(member.rank)
        self.leaving.discard(member.rank)

    def remove(self, rank: int, loss: Loss | None) -> None:
        """A worker has left, or is lost."""
        self.live.discard(rank)
        self.leaving.discard(rank)
        if loss is not None:
            self.lost.add(rank)
        member = self.by_rank.pop(rank, None)
        if member is not None:
            if loss is not None:
                self._given_up[rank, member.incarnation] = loss
            del self._by_identity[member.identity]
            if member.watch is not None:
                member.watch.close()

    def loss_of(self, header: Header) -> Loss | None:
        """Why the sender of a message was taken for lost, if it was."""
        return self._given_up.get((header.worker, header.incarnation))

    def is_taken(self, rank: int, own: Collection[int]) -> bool:
        """Whether a process other than the one with these incarnations has a rank, or has done its work."""
        there = self.by_rank.get(rank)
        return rank in self.left if there is None else there.incarnation not in own

    def named(self, rank: int) -> str:
        """A worker, for messages."""
        address = self.by_rank[rank].address if rank in self.by_rank else ""
        return f"worker {rank} at {address}" if address else f"worker {rank}"

    def hindrance(self, rank: int) -> str:
        """What keeps a worker of this machine from running, for messages; empty where nothing does, or is known."""
        member = self.by_rank.get(rank)
        found = hindrance(member.watch.pid) if member is not None and member.watch is not None else ""
        return f"it {found}" if found else ""

    @property
    def pushing(self) -> set[int]:
        """The ranks whose steps others may wait for."""
        return self.live - self.leaving

    @property
    def not_joined(self) -> set[int]:
        """The ranks of the job that have not joined yet."""
        return self.live - self.by_rank.keys()

    def joined(self) -> dict[int, int]:
        """The live ranks, each with the step at which it joined; -1 for those that began the job, joined yet or not."""
        return {rank: self.by_rank[rank].since if rank in self.by_rank else -1 for rank in self.live}

    def watched(self) -> dict[int, int]:
        """Descriptors that become readable when a worker's process ends, with its rank."""
        return {
            member.watch.descriptor: member.rank
            for member in self.by_rank.values()
            if member.watch is not None and member.watch.descriptor is not None
        }

    def silent(self, ranks: Iterable[int], timeout_s: float) -> list[int]:
        """Those of the ranks that have sent nothing for too long."""
        now = time.monotonic()
        return [rank for rank in ranks if rank in self.by_rank and now - self.by_rank[rank].heard > timeout_s]


def places_of(slices: Iterable[Slice]) -> tuple[dict[int, int], int]:
    """The layout of a worker's area, and of the server's own: the same on both sides."""
    return offsets(slices, TOKEN_BYTES)


def cannot_join(rank: int, why: str) -> UserError:
    """The error for a worker that does not belong to this job."""
    return UserError(
        f"worker {rank} cannot join this job", why=why, remedy="start all workers of a job together, with one command"
    )


def place_taken(rank: int, loss: Loss | None = None) -> PlaceTaken:
    """The error for a worker that was taken for lost and finds another process in its place."""
    return PlaceTaken(
        f"trainer-{rank} was taken for lost{f' {loss.after}' if loss else ''}, and its place was taken",
        why="another process has joined in its place, and goes on with its work",
        remedy="nothing is to be done: the job goes on without this process",
    )
