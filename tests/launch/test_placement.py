"""Which role runs on which host."""

from collections import Counter

import pytest

from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.placement import DedicatedHosts, Placement, capacity, place

A, B, C, D = (Host(name) for name in "abcd")


def where(placements: list[Placement], kind: str) -> list[int]:
    return [placement.host for placement in placements if placement.kind == kind]


def test_hosts_without_slots_share_trainers_evenly_and_servers_join_them() -> None:
    placements = place([A, B, C, D], {"trainer": 6, "server": 4})
    assert where(placements, "trainer") == [0, 0, 1, 1, 2, 3]
    assert where(placements, "server") == [0, 1, 2, 3]
    assert [placement.kind for placement in placements[:4]] == ["server"] * 4  # they start first


def test_slots_are_filled_in_order_and_ranks_count_within_a_host() -> None:
    placements = place([Host("a", slots=2), Host("b", slots=4), C], {"trainer": 7})
    assert where(placements, "trainer") == [0, 0, 1, 1, 1, 1, 2]
    assert [(placement.rank, placement.local_rank, placement.local_world) for placement in placements[:3]] == [
        (0, 0, 2),
        (1, 1, 2),
        (2, 0, 4),
    ]
    assert {placement.world for placement in placements} == {7}


def test_servers_on_dedicated_hosts() -> None:
    placements = place([A, B, C], {"trainer": 4, "server": 2}, DedicatedHosts(servers=(1,)))
    assert where(placements, "server") == [1, 1]
    assert Counter(where(placements, "trainer")) == {0: 2, 2: 2}
    with pytest.raises(UserError, match="no host is left for trainers"):
        place([A], {"trainer": 1, "server": 1}, DedicatedHosts(servers=(0,)))


def test_more_roles_than_slots_are_refused() -> None:
    with pytest.raises(UserError, match="5 roles do not fit on 4 slots") as refused:
        place([Host("a", slots=1), Host("b", slots=3)], {"trainer": 5})
    assert "a 1, b 3" in refused.value.why
    assert capacity([Host("a", slots=1), Host("b", slots=3)]) == 4
    assert capacity([Host("a", slots=1), B]) is None


def test_fewer_trainers_than_hosts_leave_hosts_empty() -> None:
    assert where(place([A, B, C], {"trainer": 2}), "trainer") == [0, 1]
    assert where(place([Host("a", slots=8), Host("b", slots=8)], {"trainer": 3}), "trainer") == [0, 0, 0]


def test_other_roles_go_to_the_host_with_the_fewest() -> None:
    hosts = [Host("a", slots=3), Host("b", slots=3), Host("c", slots=3)]
    placements = place(hosts, {"trainer": 4, "server": 2, "data": 2, "evaluator": 1})
    assert where(placements, "trainer") == [0, 0, 0, 1]
    assert where(placements, "server") == [1, 2]
    assert where(placements, "data") == [1, 2]
    assert where(placements, "evaluator") == [2]
    assert next(placement for placement in placements if placement.kind == "evaluator").local_trainers == 0
    assert {placement.local_trainers for placement in placements if placement.host == 0} == {3}
    near = place(hosts, {"trainer": 4, "evaluator": 1}, evaluator_hosts=[0])  # the host with the run folder
    assert where(near, "evaluator") == [0]


def test_an_evaluator_on_a_dedicated_host() -> None:
    placements = place([A, B, C], {"trainer": 4, "server": 1, "evaluator": 1}, DedicatedHosts(evaluator=2))
    assert where(placements, "evaluator") == [2]
    assert Counter(where(placements, "trainer")) == {0: 2, 1: 2}
    assert where(placements, "server") == [0]
    with pytest.raises(UserError, match="no host is left for trainers") as refused:
        place([A, B], {"trainer": 1, "evaluator": 1}, DedicatedHosts(servers=(1,), evaluator=0))
    assert "--servers-on and --evaluator-on" in refused.value.why
