"""Which role runs on which host: trainers by slots, the other roles next to them or on dedicated hosts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.config.role import RoleKind
from phalanx.errors import UserError
from phalanx.launch.hosts import Host

# The order of starting: servers before the roles that connect to them.
ORDER: tuple[RoleKind, ...] = ("server", "data", "teacher", "trainer", "evaluator")


@dataclass(frozen=True)
class Placement:
    """A role and its host; hosts are numbered from 0."""

    kind: RoleKind
    rank: int
    world: int
    host: int
    local_rank: int
    local_world: int
    local_trainers: int = 0  # trainers on that host

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"


@dataclass(frozen=True)
class DedicatedHosts:
    """Hosts without trainers, by number: those of parameter servers, and that of the evaluator."""

    servers: tuple[int, ...] = ()
    evaluator: int | None = None

    @property
    def hosts(self) -> set[int]:
        return {*self.servers, *(() if self.evaluator is None else (self.evaluator,))}


def place(
    hosts: Sequence[Host],
    counts: Mapping[RoleKind, int],
    dedicated: DedicatedHosts = DedicatedHosts(),
    *,
    evaluator_hosts: Sequence[int] | None = None,
) -> list[Placement]:
    """Place every role on a host. Dedicated hosts run only the roles that they are dedicated to.

    Trainers fill slots in the order of the hosts; hosts without a number of slots share the rest evenly. Ranks follow
    the order of the hosts, so neighbouring ranks share hosts, and trainer 0 is on the first. Each other role goes to
    the host with the fewest roles; the evaluator to one of `evaluator_hosts`, which have the run folder (default: all).
    """
    others = [number for number in range(len(hosts)) if number not in dedicated.hosts]
    if not others:
        raise _no_host_for_trainers(dedicated)
    chosen: dict[RoleKind, list[int]] = {"trainer": _by_slots(hosts, others, counts.get("trainer", 0))}
    load = Counter(chosen["trainer"])
    for kind in ORDER:
        if kind == "trainer":
            continue
        count = counts.get(kind, 0)
        if kind == "server" and dedicated.servers:
            chosen[kind] = _by_slots(hosts, dedicated.servers, count)
        elif kind == "evaluator" and dedicated.evaluator is not None:
            chosen[kind] = [dedicated.evaluator] * count
        else:
            usable = [
                number
                for number in others
                if kind != "evaluator" or evaluator_hosts is None or number in evaluator_hosts
            ]
            chosen[kind] = _least_loaded(usable or others, load, count)
        load.update(chosen[kind])
    trainers = Counter(chosen["trainer"])
    return [placement for kind in ORDER for placement in _placements(kind, sorted(chosen[kind]), trainers)]


def _no_host_for_trainers(dedicated: DedicatedHosts) -> UserError:
    options = {"--servers-on": bool(dedicated.servers), "--evaluator-on": dedicated.evaluator is not None}
    named = " and ".join(option for option, given in options.items() if given)
    return UserError(
        "no host is left for trainers",
        why=f"{named} take all of them",
        remedy="add hosts, or leave the option out: servers and the evaluator then share hosts with trainers",
    )


def _least_loaded(numbers: Sequence[int], load: Mapping[int, int], count: int) -> list[int]:
    """Hosts for `count` roles: each goes to the host with the fewest roles, the first of equals."""
    roles = Counter({number: load.get(number, 0) for number in numbers})
    chosen = []
    for _ in range(count):
        chosen.append(min(numbers, key=roles.__getitem__))
        roles[chosen[-1]] += 1
    return chosen


def capacity(hosts: Sequence[Host]) -> int | None:
    """How many trainers these hosts take; None if one of them has no limit."""
    slots = [host.slots for host in hosts]
    return None if None in slots else sum(count for count in slots if count is not None)


def _by_slots(hosts: Sequence[Host], numbers: Sequence[int], count: int) -> list[int]:
    limit = capacity([hosts[number] for number in numbers])
    if limit is not None and count > limit:
        named = ", ".join(f"{hosts[number].name} {hosts[number].slots}" for number in numbers[:8])
        raise UserError(
            f"{count} roles do not fit on {limit} slots",
            why=f"the hosts offer: {named}{' …' if len(numbers) > 8 else ''}",
            remedy="request fewer, add hosts, or raise slots=",
        )
    chosen: list[int] = []
    for number in numbers:
        chosen += [number] * min(hosts[number].slots or 0, count - len(chosen))
    unlimited = [number for number in numbers if hosts[number].slots is None]
    left = count - len(chosen)
    for position, number in enumerate(unlimited):
        chosen += [number] * (left // len(unlimited) + (position < left % len(unlimited)))
    return chosen


def _placements(kind: RoleKind, chosen: Sequence[int], trainers: Mapping[int, int]) -> list[Placement]:
    """Assign ranks in the order of the hosts, and local ranks on each host."""
    local_world, next_local_rank = Counter(chosen), Counter[int]()
    placements = []
    for rank, host in enumerate(chosen):
        local_rank = next_local_rank[host]
        local = (local_rank, local_world[host], trainers.get(host, 0))
        placements.append(Placement(kind, rank, len(chosen), host, *local))
        next_local_rank[host] += 1
    return placements
