"""How many pods have room: by resources, labels and taints of nodes, and what is on them."""

from typing import Any

import pytest

from phalanx.launch.launchers.kubernetes_quota import quota_room
from phalanx.launch.launchers.kubernetes_room import quantity, requests, room


def node(name: str, **spec: Any) -> dict[str, Any]:
    """Two cores and 4 Gi."""
    ready = {"type": "Ready", "status": str(spec.pop("ready", True))}
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kind": name}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable, "conditions": [ready]}}


def pod(cpu: str, on: str = "", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu, "memory": "1G"}}
    return {"spec": {"nodeName": on, "containers": [{"resources": resources}], **spec}, "status": {"phase": phase}}


NODES = [node("a"), node("b")]


@pytest.mark.parametrize(
    ("text", "amount"), [("2", 2), ("500m", 0.5), ("1Gi", 2**30), ("2000M", 2e9), ("1e3", 1000), (3, 3), ("1E", 1e18)]
)
def test_quantities(text: object, amount: float) -> None:
    assert quantity(text) == pytest.approx(amount)


def test_a_limit_is_a_request_and_init_containers_come_before() -> None:
    first = {"resources": {"requests": {"cpu": "3"}}}
    assert requests({**pod("1")["spec"], "initContainers": [first]}) == {"cpu": 3, "memory": 1e9, "pods": 1}


def test_room() -> None:
    wanted = pod("2")["spec"]
    assert room(wanted, 3, NODES, []) == 2
    assert room(wanted, 1, NODES, []) == 1
    assert room(wanted, 3, NODES, [pod("100m", "a"), pod("2", "b", "Succeeded")]) == 1
    assert room(pod("500m")["spec"], 9, NODES, [pod("1500m", "a")]) == 1 + 4
    assert room({"containers": [{}]}, 9, NODES, []) == 9


def test_nodes_that_cannot_be_used() -> None:
    wanted = pod("1")["spec"]
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    others = [node("a", ready=False), node("b", unschedulable=True), node("c", taints=[taint])]
    assert room(wanted, 9, others, []) == 0
    assert room({**wanted, "tolerations": [{"key": "gpu", "operator": "Exists"}]}, 9, others, []) == 2
    assert room({**wanted, "tolerations": [{"key": "gpu", "operator": "Equal", "value": "no"}]}, 9, others, []) == 0
    assert room({**wanted, "nodeSelector": {"kind": "b"}}, 9, NODES, []) == 2


def quota(name: str, hard: str, used: str, **spec: Any) -> dict[str, Any]:
    status = {"hard": {name: hard}, "used": {name: used}}
    return {"metadata": {"name": "small"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("of_quota", "now", "ever"),
    [
        (quota("pods", "2", "1"), 1, 2),
        (quota("limits.memory", "2Gi", "0"), 2, 2),
        (quota("requests.cpu", "1500m", "500m"), 2, 3),
        (quota("requests.nvidia.com/gpu", "0", "0"), 3, 3),
        (quota("pods", "1", "0", scopes=["BestEffort"]), 3, 3),
    ],
)
def test_room_in_a_quota(of_quota: dict[str, Any], now: int, ever: int) -> None:
    found = quota_room(pod("500m")["spec"], 3, [of_quota])
    assert (found.now, found.ever) == (now, ever)
    assert found.why.startswith("quota small: " if now < 3 else "")


def test_the_quota_that_never_has_room_counts_beside_a_tighter_one() -> None:
    full = quota("pods", "3", "2")
    small = {**quota("requests.cpu", "1", "0"), "metadata": {"name": "cores"}}
    for quotas in ([full, small], [small, full]):
        found = quota_room(pod("500m")["spec"], 3, quotas)
        assert (found.now, found.ever) == (1, 2)
        assert found.why == "quota cores: requests.cpu is limited to 1, and in use are 0"
