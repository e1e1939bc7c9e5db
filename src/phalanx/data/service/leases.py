"""The lease table of a trainer: each step's work is delivered exactly once and in order, whichever server made it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from phalanx.data.order import Work
from phalanx.errors import UserError

H = TypeVar("H")  # holds a lease: a server
M = TypeVar("M")  # what is made of it: a batch


@dataclass
class Lease(Generic[H, M]):
    """A step's work, the servers that make it, and the batch."""

    number: int
    work: Work
    holders: set[H] = field(default_factory=set)  # that owe it: none, one, or several where one is slow
    failed: dict[H, UserError] = field(default_factory=dict)  # those that could not make it, and why
    made: M | None = None


class Leases(Generic[H, M]):
    """The work ahead, in order, from the step that the trainer needs next."""

    def __init__(self, works: Iterator[Work]) -> None:
        self._works, self._ahead, self._count = works, deque[Lease[H, M]](), 0

    @property
    def head(self) -> Lease[H, M]:
        """The step that the trainer needs next."""
        self._extend(1)
        return self._ahead[0]

    def pop(self) -> None:
        """Drop the head, which was delivered."""
        self._ahead.popleft()

    def open(self, ahead: int) -> Iterator[Lease[H, M]]:
        """Those that no server is making, in order, among the next `ahead`."""
        self._extend(ahead)
        return (lease for lease in list(self._ahead)[:ahead] if lease.made is None and not lease.holders)

    def arrive(self, number: int, made: M) -> bool:
        """Take a batch. False for a step that was made or delivered already."""
        lease = self._find(number)
        if lease is None or lease.made is not None:
            return False
        lease.made = made
        lease.holders.clear()
        return True

    def fail(self, number: int, holder: H, error: UserError) -> None:
        """A server cannot make a batch. Others may."""
        lease = self._find(number)
        if lease is not None:
            lease.holders.discard(holder)
            lease.failed[holder] = error

    def release(self, holder: H) -> int:
        """Free the leases of a server that is lost, for others. Returns how many."""
        released = [lease for lease in self._ahead if holder in lease.holders]
        for lease in released:
            lease.holders.discard(holder)
        return len(released)

    def _find(self, number: int) -> Lease[H, M] | None:
        place = number - (self._count - len(self._ahead))
        return self._ahead[place] if 0 <= place < len(self._ahead) else None

    def _extend(self, ahead: int) -> None:
        while len(self._ahead) < ahead:
            self._ahead.append(Lease(self._count, next(self._works)))
            self._count += 1
