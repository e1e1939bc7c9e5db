"""Whether a namespace's quotas leave room for all pods of a job. A quota itself refuses them one by one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from phalanx.launch.launchers.kubernetes_room import PODS, limits, quantity, requests

Object = Mapping[str, Any]


@dataclass(frozen=True)
class QuotaRoom:
    """How many pods fit now, how many would if nothing else were there, and the quota that says so.

    `why` is of the quota that never has room for all; without one, of the tightest now.
    """

    now: int
    ever: int
    why: str = ""


def quota_room(pod: Object, count: int, quotas: Iterable[Object]) -> QuotaRoom:
    """The room for `count` pods with this spec. Quotas for some pods only (scopes) are not looked at."""
    wanted = _by_quota(pod)
    found = QuotaRoom(count, count)
    for quota in quotas:
        if quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"):
            continue
        status = quota.get("status", {})
        for name, text in status.get("hard", {}).items():
            if name not in wanted:
                continue
            hard, used = quantity(text), quantity(status.get("used", {}).get(name, "0"))
            now, ever = (max(0, min(count, int(left / wanted[name] + 1e-6))) for left in (hard - used, hard))
            if ever < found.ever or (now < found.now and found.ever == count):
                told = f"quota {quota['metadata']['name']}: {name} is limited to {text}, and in use are"
                found = replace(found, why=f"{told} {status.get('used', {}).get(name, '0')}")
            found = replace(found, now=min(now, found.now), ever=min(ever, found.ever))
    return found


def _by_quota(pod: Object) -> dict[str, float]:
    """What a pod takes, by the names that quotas use."""
    asked = {f"requests.{name}": amount for name, amount in requests(pod).items() if name != PODS}
    plain = {name: amount for name, amount in requests(pod).items() if name in ("cpu", "memory")}
    most = {f"limits.{name}": amount for name, amount in limits(pod).items()}
    return {PODS: 1.0, "count/pods": 1.0, **asked, **plain, **most}
