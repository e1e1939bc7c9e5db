"""Which role runs on which host: trainers by slots, the other kinds beside them or on hosts of their own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.role import Kind

# In the order in which they are started: who listens comes before who looks for it.
ORDER: tuple[Kind, ...] = ("server", "data", "trainer", "evaluator")


@dataclass(frozen=True)
class Seat:
    """A role and its place; `host` counts from 0."""

    kind: Kind
    rank: int
    world: int
    host: int
    local_rank: int
    local_world: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"


def place(hosts: Sequence[Host], wanted: Mapping[Kind, int], *, servers_on: Sequence[int] = ()) -> list[Seat]:
    """A seat for every role. Hosts whose numbers are in `servers_on` have servers and nothing else.

    Trainers fill slots in the order of the hosts; hosts that name no slots share evenly what is left. Ranks follow the
    order of the hosts, so that neighbours in rank are neighbours in place, and trainer 0 is on the first host.
    """
    others = [number for number in range(len(hosts)) if number not in servers_on]
    if not others:
        raise UserError(
            "no host is left for trainers",
            why="--servers-on names all of them",
            remedy="add hosts, or leave --servers-on out: servers then run beside trainers",
        )
    seats: list[Seat] = []
    for kind in ORDER:
        count = wanted.get(kind, 0)
        if kind == "trainer":
            each = _by_slots(hosts, others, count)
        elif kind == "server" and servers_on:
            each = _by_slots(hosts, servers_on, count)
        else:
            each = [others[number % len(others)] for number in range(count)]
        seats += _seats(kind, sorted(each))
    return seats


def room(hosts: Sequence[Host]) -> int | None:
    """How many trainers these hosts take; None where one of them names no limit."""
    slots = [host.slots for host in hosts]
    return None if None in slots else sum(count for count in slots if count is not None)


def _by_slots(hosts: Sequence[Host], numbers: Sequence[int], count: int) -> list[int]:
    limit = room([hosts[number] for number in numbers])
    if limit is not None and count > limit:
        named = ", ".join(f"{hosts[number].name} {hosts[number].slots}" for number in numbers[:8])
        raise UserError(
            f"{count} roles do not fit on {limit} slots",
            why=f"the hosts offer: {named}{' …' if len(numbers) > 8 else ''}",
            remedy="ask for fewer, add hosts, or raise slots=",
        )
    places: list[int] = []
    for number in numbers:
        places += [number] * min(hosts[number].slots or 0, count - len(places))
    unlimited = [number for number in numbers if hosts[number].slots is None]
    left = count - len(places)
    for position, number in enumerate(unlimited):
        places += [number] * (left // len(unlimited) + (position < left % len(unlimited)))
    return places


def _seats(kind: Kind, places: Sequence[int]) -> list[Seat]:
    """Ranks in the order of the hosts, and the place of each among its neighbours of the same kind."""
    there, seated = Counter(places), Counter[int]()
    made = []
    for rank, host in enumerate(places):
        made.append(Seat(kind, rank, len(places), host, seated[host], there[host]))
        seated[host] += 1
    return made
