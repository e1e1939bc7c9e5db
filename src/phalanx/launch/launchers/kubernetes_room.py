"""How many pods of a job a cluster has room for: its nodes, less what the pods on them have asked for.

An estimate by nodes' resources, labels and taints, for `--gang`; the scheduler decides. Pure functions of what kubectl
prints.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
_SLACK = 1e-6  # of rounding
PODS = "pods"  # a node takes so many of them


def room(pod: Object, count: int, nodes: Iterable[Object], pods: Iterable[Object]) -> int:
    """How many pods with this spec have room now, at most `count`."""
    taken: dict[tuple[str, str], float] = {}  # by node and resource
    for one in pods:
        if one.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            for name, amount in requests(one["spec"]).items():
                place = one["spec"].get("nodeName", ""), name
                taken[place] = taken.get(place, 0.0) + amount
    wanted = requests(pod)
    fitting = 0.0
    for node in nodes:
        if not _takes(node, pod):
            continue
        has, name = node["status"].get("allocatable", {}), node["metadata"]["name"]
        free = {one: quantity(has.get(one, "0")) - taken.get((name, one), 0.0) for one in wanted}
        fitting += max(0.0, min((free[one] + _SLACK) // amount for one, amount in wanted.items()))
    return min(count, int(fitting))


def requests(pod: Object) -> dict[str, float]:
    """What a pod asks for, by resource. A limit without a request is a request."""
    return {**_amounts(pod, "limits", "requests"), PODS: 1.0}


def limits(pod: Object) -> dict[str, float]:
    """The most that a pod may take, by resource."""
    return _amounts(pod, "limits")


def _amounts(pod: Object, *kinds: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for container in pod["containers"]:
        for name, amount in _of(container, kinds).items():
            total[name] = total.get(name, 0.0) + amount
    for container in pod.get("initContainers", []):  # these run before, one at a time
        for name, amount in _of(container, kinds).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def _of(container: Object, kinds: Iterable[str]) -> dict[str, float]:
    """A container's amounts, of the last kind that has each."""
    asked = container.get("resources", {})
    texts = {name: text for kind in kinds for name, text in asked.get(kind, {}).items()}
    return {name: quantity(text) for name, text in texts.items() if quantity(text)}


def quantity(text: object) -> float:
    """Kubernetes' amounts: 2, 500m, 1Gi, 2000M, 1e3."""
    amount = str(text)
    for length in (2, 1):
        unit = amount[-length:]
        if unit in _UNITS and len(amount) > length:
            return float(amount[:-length]) * _UNITS[unit]
    return float(amount)


def _takes(node: Object, pod: Object) -> bool:
    """Whether the scheduler may use a node for a pod."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", []))
    labels = node["metadata"].get("labels", {})
    chosen = all(labels.get(key) == value for key, value in pod.get("nodeSelector", {}).items())
    taints = [one for one in node["spec"].get("taints", []) if one["effect"] != "PreferNoSchedule"]
    tolerated = all(any(_tolerates(one, taint) for one in pod.get("tolerations", [])) for taint in taints)
    return ready and chosen and tolerated and not node["spec"].get("unschedulable")


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
