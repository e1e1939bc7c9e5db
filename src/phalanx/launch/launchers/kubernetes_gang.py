"""`--gang`: a job begins when the cluster has room for all of its pods. Until then it has none, and holds nothing."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.launchers.kubectl import Kubectl, KubectlError
from phalanx.launch.launchers.kubernetes_quota import quota_room
from phalanx.launch.launchers.kubernetes_room import room

_LOOK_S = 5.0
_SILENT_S = 120.0  # without an answer of the cluster


def refuse_gang(kubectl: Kubectl) -> None:
    """Refuse --gang for a user who may not see the cluster's nodes and pods."""
    try:
        _look(kubectl)
    except KubectlError as error:
        if not error.may_not:
            raise
        raise UserError(
            "--gang cannot see how much room the cluster has",
            why=error.said,
            remedy="--queue NAME (Kueue admits all pods or none); or leave --gang out: pods wait for one another",
        ) from error


def await_room(kubectl: Kubectl, job: str, pod: Mapping[str, Any], count: int, console: Console) -> bool:
    """Wait until `count` pods with this spec have room, and say how many have none. False if the job is deleted."""
    shown, answered = count, time.monotonic()
    while True:
        try:
            if not kubectl.exists("job", job):
                return False  # by `phalanx stop`
            found = min(room(pod, count, *_look(kubectl)), quota_room(pod, count, kubectl.quotas()).now)
            answered = time.monotonic()
        except KubectlError:
            if time.monotonic() - answered > _SILENT_S:
                raise
            found = shown
        else:
            if found >= count:
                return True
        if found != shown:
            text = f"job {job} is waiting for room for {count - found} of {count} pods; it holds nothing until then"
            console.print(Text(text), soft_wrap=True)
        shown = found
        time.sleep(_LOOK_S)


def _look(kubectl: Kubectl) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All nodes, and all pods."""
    return kubectl.objects("looking for room", "nodes"), kubectl.objects("looking for room", "pods", "--all-namespaces")
