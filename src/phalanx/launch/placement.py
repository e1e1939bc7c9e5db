"""Which role runs on which host: trainers by slots, the other kinds beside them or on hosts of their own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.config.role import RoleKind
from phalanx.errors import UserError
from phalanx.launch.hosts import Host

# In the order in which they are started: who listens comes before who looks for it.
ORDER: tuple[RoleKind, ...] = ("server", "data", "trainer", "evaluator")


@dataclass(frozen=True)
class Placement:
    """A role and its place; `host` counts from 0."""

    kind: RoleKind
    rank: int
    world: int
    host: int
    local_rank: int
    local_world: int
    beside: int = 0  # trainers on that host

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"


@dataclass(frozen=True)
class DedicatedHosts:
    """Numbers of hosts that have no trainers: those for servers, and that of the evaluator."""

    servers: tuple[int, ...] = ()
    evaluator: int | None = None

    @property
    def hosts(self) -> set[int]:
        return {*self.servers, *(() if self.evaluator is None else (self.evaluator,))}


def place(
    hosts: Sequence[Host],
    wanted: Mapping[RoleKind, int],
    apart: DedicatedHosts = DedicatedHosts(),
    *,
    reach: Sequence[int] | None = None,
) -> list[Placement]:
    """A seat for every role. Hosts that are `apart` have the roles that they are named for, and nothing else.

    Trainers fill slots in the order of the hosts; hosts that name no slots share evenly what is left. Ranks follow the
    order of the hosts, so that neighbours in rank are neighbours in place, and trainer 0 is on the first host. Each of
    the other roles goes to the host that has the fewest by then; an evaluator to one of `reach`, which reach the run's
    folder (default: all do).
    """
    others = [number for number in range(len(hosts)) if number not in apart.hosts]
    if not others:
        named = " and ".join(
            option
            for option, given in (("--servers-on", apart.servers), ("--evaluator-on", apart.evaluator is not None))
            if given
        )
        raise UserError(
            "no host is left for trainers",
            why=f"{named} take all of them",
            remedy="add hosts, or leave it out: servers and the evaluator then run beside trainers",
        )
    places: dict[RoleKind, list[int]] = {"trainer": _by_slots(hosts, others, wanted.get("trainer", 0))}
    load = Counter(places["trainer"])
    for kind in ORDER:
        if kind == "trainer":
            continue
        count = wanted.get(kind, 0)
        if kind == "server" and apart.servers:
            places[kind] = _by_slots(hosts, apart.servers, count)
        elif kind == "evaluator" and apart.evaluator is not None:
            places[kind] = [apart.evaluator] * count
        else:
            among = [number for number in others if kind != "evaluator" or reach is None or number in reach]
            places[kind] = _where_fewest(among or others, load, count)
        load.update(places[kind])
    beside = Counter(places["trainer"])
    return [placement for kind in ORDER for placement in _placements(kind, sorted(places[kind]), beside)]


def _where_fewest(numbers: Sequence[int], load: Mapping[int, int], count: int) -> list[int]:
    """Hosts for so many roles, each where the fewest roles are by then; of equals the first."""
    there = Counter({number: load.get(number, 0) for number in numbers})
    chosen = []
    for _ in range(count):
        chosen.append(min(numbers, key=there.__getitem__))
        there[chosen[-1]] += 1
    return chosen


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


def _placements(kind: RoleKind, places: Sequence[int], beside: Mapping[int, int]) -> list[Placement]:
    """Ranks in the order of the hosts, and the place of each among its neighbours of the same kind."""
    there, seated = Counter(places), Counter[int]()
    made = []
    for rank, host in enumerate(places):
        made.append(Placement(kind, rank, len(places), host, seated[host], there[host], beside.get(host, 0)))
        seated[host] += 1
    return made
