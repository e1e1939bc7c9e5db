"""What a cluster says about a job, as one state: which pods wait and why, which run, how it ended and who failed first.

Pure functions of the objects that `kubectl get -o json` prints.
"""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from phalanx.errors import EXIT_OURS, EXIT_REFORM, EXIT_USER, UserError, parse_error

Object = Mapping[str, Any]
Kind = Literal["suspended", "waiting", "running", "stopping", "finished", "failed", "gone"]
_INDEX = "batch.kubernetes.io/job-completion-index"
_WORLD = "PHALANX_WORLD"
# Reasons of a container that waits which do not go away by themselves; others are a normal start.
_HOPELESS = (
    *("InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)
_LOST = re.compile(r"^stopped at step [\d,]+: (.+?);? step .*$", re.MULTILINE)  # the last line of one that lost another
_REMOVED = re.compile(r"[Pp]od \S+/(\S+) has condition DisruptionTarget")
_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")


@dataclass(frozen=True)
class Wait:
    """Why pods do not run. A `hopeless` one will not by itself."""

    pods: tuple[str, ...]
    why: str
    hopeless: bool = False


@dataclass(frozen=True)
class PodState:
    """One pod of a job."""

    name: str
    role: str
    index: int
    node: str = ""
    phase: str = "Pending"
    deleted: bool = False  # it is being ended
    disrupted: str = ""  # why the cluster removed it
    code: int | None = None
    reason: str = ""  # such as OOMKilled
    ended: str = ""  # when, as the cluster writes it
    message: str = ""  # the last lines that it printed, of a pod that failed
    wait: str = ""
    hopeless: bool = False
    created: str = ""

    @property
    def running(self) -> bool:
        return self.phase == "Running" and self.code is None

    @property
    def begun(self) -> bool:
        """Whether it has a log: not one whose container is being made, or that was evicted without one."""
        return self.phase != "Pending" and (self.running or self.code is not None)

    @property
    def failed(self) -> bool:
        return self.phase == "Failed" or bool(self.code)

    @property
    def error(self) -> UserError | None:
        return parse_error(self.message.splitlines())

    @property
    def where(self) -> str:
        return f"{self.role} (pod {self.name}{f' on {self.node}' if self.node else ''})"

    @property
    def state(self) -> str:
        """For a table."""
        if self.code is not None:
            return f"ended ({self.code}{f', {self.reason}' if self.reason not in ('', 'Error', 'Completed') else ''})"
        if self.deleted:
            return "stopping"
        return "running" if self.phase == "Running" else f"waiting: {self.wait}" if self.wait else self.phase.lower()

    @property
    def how(self) -> str:
        """How it ended."""
        because = f": {self.disrupted}" if self.disrupted else ""
        if self.reason == "OOMKilled":
            return "was killed: it used more memory than its limit (OOMKilled)"
        if self.code is None:
            return f"was lost{because}"
        if self.error is not None and self.code in (EXIT_OURS, EXIT_USER, EXIT_REFORM):
            return f"ended with code {self.code}: {self.error.what}"
        if self.code == EXIT_REFORM and (found := _LOST.findall(self.message)):
            return f"has saved and ended with code {self.code}: {found[-1]}"
        if 128 < self.code < 128 + 65:
            number = self.code - 128
            name = signal.Signals(number).name if number in list(signal.Signals) else str(number)
            return f"was {'told to end' if number == signal.SIGTERM else 'killed'} by {name}{because}"
        return f"ended with code {self.code}{because}"


@dataclass(frozen=True)
class JobState:
    """A job. `detail` is the cluster's own reason of its end."""

    kind: Kind
    count: int = 0
    pods: tuple[PodState, ...] = ()
    waits: tuple[Wait, ...] = ()
    detail: str = ""
    restarts: int = 0

    @property
    def over(self) -> bool:
        return self.kind in ("finished", "failed", "gone")

    @property
    def running(self) -> int:
        return sum(pod.running for pod in self.pods)

    @property
    def unended(self) -> list[PodState]:
        """The pods that keep a job from ending, if all of them were told to end."""
        left = [pod for pod in self.pods if pod.code is None and pod.phase in ("Pending", "Running", "Unknown")]
        return left if self.kind == "stopping" and all(pod.deleted for pod in left) else []

    @property
    def text(self) -> str:
        """In a line."""
        if self.kind == "suspended":
            return f"suspended: {self.detail}"
        if self.kind == "waiting" or self.waits:
            reasons = "; ".join(f"{_listed(wait.pods)}: {wait.why}" if wait.pods else wait.why for wait in self.waits)
            return f"waiting for {self.count - self.running} of {self.count} pods" + (f": {reasons}" if reasons else "")
        if self.kind == "running":
            nodes = sorted({pod.node for pod in self.pods if pod.node})
            return f"running on {', '.join(nodes)}" if nodes else "running"
        return f"{self.kind}{f': {self.detail}' if self.detail else ''}"


def job_state(job: Object | None, pods: Iterable[Object], events: Iterable[Object] = ()) -> JobState:
    """The state of a Job (None: it is not there), its pods, and the namespace's events."""
    events = list(events)
    known = sorted((_pod(pod, events) for pod in pods), key=lambda pod: (pod.index, pod.created))
    if job is None:
        return JobState("stopping" if known else "gone", len(known), tuple(known))
    spec, status = job["spec"], job.get("status", {})
    count = int(spec.get("completions") or 1)
    state = JobState("waiting", count, tuple(known), restarts=_restarts(spec, status))
    conditions = {each["type"]: each for each in status.get("conditions", []) if each["status"] == "True"}
    if job["metadata"].get("deletionTimestamp"):  # its pods fail then, which is nobody's fault
        return replace(state, kind="stopping")
    if "Complete" in conditions:
        return replace(state, kind="finished")
    for name in ("Failed", "FailureTarget"):
        if name in conditions:
            why = conditions[name]
            detail = why.get("message") or why.get("reason", "")
            alive = name == "FailureTarget" or int(status.get("active") or 0) > 0
            return replace(state, kind="stopping" if alive else "failed", detail=detail)
    if spec.get("suspend"):
        queued = any(key.startswith("kueue.") for key in job["metadata"].get("labels", {}))
        waits_for = "its queue to admit it" if queued else "its launcher, until there is room for all pods (--gang)"
        return replace(state, kind="suspended", detail=f"it waits for {waits_for}")
    waits = _waits(job, known, events, count)
    begun = {pod.index for pod in known if pod.phase in ("Running", "Succeeded") or pod.code is not None}
    return replace(state, kind="running" if len(begun) >= count and not waits else "waiting", waits=waits)


def _restarts(spec: Object, status: Object) -> int:
    """How often pods were started again: each that failed, as long as the limit allows it."""
    return min(int(status.get("failed") or 0), int(spec.get("backoffLimit") or 0))


def _waits(job: Object, pods: Sequence[PodState], events: Sequence[Object], count: int) -> tuple[Wait, ...]:
    """Pods that wait, by reason; first those that the cluster refuses to make."""
    found = []
    if len({pod.index for pod in pods}) < count:
        refusals = [_text(one) for one in events if one.get("reason") == "FailedCreate" and _is_of(one, job)]
        if refusals:
            found.append(Wait((), f"the cluster refuses to make pods: {refusals[-1]}", hopeless=True))
    reasons: dict[tuple[str, bool], list[str]] = {}
    for pod in pods:
        if pod.wait:
            reasons.setdefault((pod.wait, pod.hopeless), []).append(pod.role)
    return (*found, *(Wait(tuple(roles), why, hopeless) for (why, hopeless), roles in reasons.items()))


def _pod(pod: Object, events: Sequence[Object]) -> PodState:
    metadata, status = pod["metadata"], pod.get("status", {})
    index = int(metadata.get("annotations", {}).get(_INDEX) or metadata.get("labels", {}).get(_INDEX) or 0)
    container: Object = next(iter(status.get("containerStatuses", [])), {})
    now = container.get("state", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    disrupted = conditions.get("DisruptionTarget", {})
    found = PodState(
        metadata["name"],
        _role(pod, index),
        index,
        pod["spec"].get("nodeName", ""),
        status.get("phase", "Pending"),
        "deletionTimestamp" in metadata,
        disrupted.get("message", "") if disrupted.get("status") == "True" else "",
        created=metadata.get("creationTimestamp", ""),
    )
    if "terminated" in now:
        end = now["terminated"]
        message = end.get("message", "")
        return replace(
            found, code=end["exitCode"], reason=end.get("reason", ""), ended=end.get("finishedAt", ""), message=message
        )
    if found.phase == "Failed":  # without a container: evicted, or refused by its node
        return replace(found, reason=status.get("reason", ""), disrupted=found.disrupted or status.get("message", ""))
    if found.phase == "Pending":
        why, hopeless = _why_pending(pod, conditions, now.get("waiting", {}), events)
        return replace(found, wait=why, hopeless=hopeless)
    return found


def _why_pending(
    pod: Object, conditions: Mapping[str, Object], waiting: Object, events: Sequence[Object]
) -> tuple[str, bool]:
    placed = conditions.get("PodScheduled", {})
    if placed.get("status") == "False":
        message = placed.get("message", placed.get("reason", "it has no place"))
        return message.partition(". ")[0].rstrip("."), "persistentvolumeclaim" in message and "not found" in message
    reason = waiting.get("reason", "")
    if reason in ("ErrImagePull", "ImagePullBackOff"):  # these alternate
        return f"its image cannot be pulled: {waiting.get('message', '').rpartition('ErrImagePull: ')[2]}", True
    if reason in _HOPELESS:
        return f"{reason}: {waiting.get('message', '')}".rstrip(": "), True
    for event in reversed(events):
        if event.get("reason") in _EVENTS and _is_of(event, pod):
            return _text(event), False
    return "", False


def _is_of(event: Object, thing: Object) -> bool:
    about = event.get("involvedObject", {})
    return about.get("uid") == thing["metadata"].get("uid") or (
        "uid" not in about and about.get("name") == thing["metadata"]["name"]
    )


def _text(event: Object) -> str:
    return str(event.get("message", event.get("reason", ""))).strip()


def _role(pod: Object, index: int) -> str:
    variables = {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0].get("env", [])}
    trainers = int(variables.get(_WORLD) or index + 1)
    return f"trainer-{index}" if index < trainers else f"server-{index - trainers}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


@dataclass
class PodHistory:
    """Every pod that a job has had, as it was seen last: failed pods are deleted, and their reasons with them."""

    _seen: dict[str, PodState] = field(default_factory=dict)

    def add(self, state: JobState) -> None:
        for pod in state.pods:
            self._seen[pod.name] = pod
        there = {pod.name for pod in state.pods}
        for name, pod in self._seen.items():
            if name not in there and pod.code is None:
                self._seen[name] = replace(pod, deleted=True)

    def cause(self, detail: str = "") -> PodState | None:
        """The pod that most likely failed first. Pods that ended because of another one say so, and end later.

        `detail` is the Job's own reason. A pod that the cluster has removed may be gone before its end was seen.
        """
        removed = _REMOVED.search(detail)
        if removed is not None and (pod := self._seen.get(removed[1])) is not None:
            return replace(pod, disrupted=pod.disrupted or "the cluster removed it")
        failed = [pod for pod in self._seen.values() if pod.failed]
        return min(failed, key=_priority, default=None)


def _priority(pod: PodState) -> tuple[int, str]:
    """Killed before failed, before survivors that say whom they lost, before told to end; other survivors last."""
    if pod.reason == "OOMKilled" or pod.disrupted:
        rank = 0
    elif pod.code is None or (pod.code > 128 and pod.code != 128 + signal.SIGTERM):
        rank = 1
    elif pod.code in (EXIT_USER, EXIT_REFORM) and (pod.error is None or "--resume" in pod.error.remedy):
        rank = 3 if _LOST.search(pod.message) else 5  # or it was asked to save and leave with another one
    else:
        rank = 4 if pod.code == 128 + signal.SIGTERM else 2
    return rank, pod.ended


def exit_code(cause: PodState | None) -> int:
    """Of the launcher, for a job that failed: a user's mistake is one here, too."""
    return EXIT_USER if cause is not None and cause.code == EXIT_USER else EXIT_OURS
