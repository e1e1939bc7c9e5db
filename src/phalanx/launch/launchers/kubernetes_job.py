"""A job in a cluster, by its name: create it with all that belongs to it, look at it, stop it, read its logs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.errors import UserError
from phalanx.launch.launchers.kubectl import Kubectl, KubectlError
from phalanx.launch.launchers.kubernetes_gang import refuse_gang
from phalanx.launch.launchers.kubernetes_quota import quota_room
from phalanx.launch.launchers.kubernetes_state import JobState, PodState, job_state
from phalanx.launch.launchers.manifests import Manifest, Pods, belongings, selector
from phalanx.launch.launchers.scheduler import State

PREFIX = "k8s:"  # of a job where a run folder is expected: k8s:JOB or k8s:NAMESPACE/JOB


@dataclass(frozen=True)
class KubernetesJob:
    """One job. All that is known about it is in the cluster."""

    name: str
    namespace: str | None = None

    @staticmethod
    def parse(text: str) -> "KubernetesJob":
        """NAMESPACE/JOB, or JOB of the current namespace."""
        namespace, _, name = text.rpartition("/")
        return KubernetesJob(name, namespace or None)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.namespace)

    def look(self, *, events: bool = True) -> JobState:
        """Ask for the Job, its pods, and what happened to them."""
        found = self.kubectl.objects(f"looking at job {self}", "jobs,pods", "-l", selector(self.name))
        jobs = [one for one in found if one["kind"] == "Job" and one["metadata"]["name"] == self.name]
        pods = [one for one in found if one["kind"] == "Pod"]
        job = jobs[0] if jobs else None
        state = job_state(job, pods)
        if events and state.kind == "waiting":
            return job_state(job, pods, self._events())
        return state

    def _events(self) -> list[dict[str, Any]]:
        try:
            found = self.kubectl.objects("reading events", "events", "--sort-by=.metadata.creationTimestamp")
        except KubectlError as error:
            if not error.may_not:
                raise
            return []  # they would only explain
        names = (f"{self.name}-", self.name)
        return [one for one in found if str(one.get("involvedObject", {}).get("name", "")).startswith(names)]

    def stop(self) -> None:
        """Delete the Job: its pods save and end, and what belongs to it goes with it."""
        words = ("job", self.name, "--cascade=foreground", "--wait=false", "--ignore-not-found")
        self.kubectl.run(f"stopping job {self}", "delete", *words)

    def stop_now(self) -> None:
        """End its pods without a checkpoint."""
        self.stop()
        words = ("-l", selector(self.name), "--grace-period=1", "--wait=false")
        self.kubectl.run(f"ending the pods of job {self}", "delete", "pods", *words)

    def log_command(self, pod: PodState, *, follow: bool) -> list[str]:
        return self.kubectl.argv("logs", pod.name, *(["-f"] if follow else []))

    def create(self, pods: Pods, job: Manifest) -> None:
        """Create the Job, suspended, then what belongs to it."""
        kubectl = self.kubectl
        (made,) = kubectl.create("creating the Job", [{**job, "spec": {**job["spec"], "suspend": True}}])
        try:
            kubectl.create("creating what the pods need", belongings(pods, made["metadata"]["uid"]))
        except BaseException:  # also Ctrl-C: nothing of a job that did not start stays behind
            self.remove()
            raise

    def begin(self) -> None:
        """Have it make its pods."""
        go = ("job", self.name, "--type=merge", "-p", json.dumps({"spec": {"suspend": False}}))
        self.kubectl.run("starting the Job", "patch", *go)

    def remove(self) -> None:
        """Delete a Job that has no pods."""
        words = ("job", self.name, "--cascade=background", "--wait=false", "--ignore-not-found")
        self.kubectl.run("removing the Job", "delete", *words)

    # As a scheduler's job: `phalanx status` and `stop` treat it as one.

    def state(self) -> State:
        try:
            state = self.look()
        except KubectlError as error:
            return State("unknown", error.said)
        kinds = {"suspended": "waiting", "waiting": "waiting", "running": "running", "stopping": "running"}
        detail = state.text.removeprefix(f"{state.kind}: ") if state.kind != "gone" else "it is not in the cluster"
        return State(kinds.get(state.kind, "ended"), detail)  # type: ignore[arg-type]


def check(job: KubernetesJob, pods: Pods, manifest: Manifest) -> None:
    """Refuse what the cluster would refuse, before anything is made: it is asked to create everything as a dry run."""
    kubectl, options = job.kubectl, pods.options
    dry = "--dry-run=server"
    try:
        kubectl.create("creating the Job", [manifest], dry)
    except KubectlError as error:
        if "(AlreadyExists)" not in error.said:
            raise
        raise UserError(
            f"there is a job {job} already",
            why="a job is created once; a second one of that name would not run",
            remedy=f"phalanx status {PREFIX}{job}; phalanx stop {PREFIX}{job}; or choose another --out",
        ) from error
    needed = [("pvc", options.claim, "--volume-claim"), ("localqueue", options.queue, "--queue")]
    needed += [("priorityclass", options.priority_class, "--priority-class")]
    needed += [("secret", name, "--image-pull-secret") for name in options.pull_secrets]
    for kind, name, option in needed:
        if name is not None and not kubectl.exists(kind, name):
            raise UserError(
                f"{option} {name}: the cluster has no such {kind}",
                why="pods would wait for it for ever",
                remedy=f"kubectl get {kind} shows those that are there",
            )
    if options.gang:
        refuse_gang(kubectl)
    _check_quotas(kubectl, pods, manifest)
    kubectl.create("creating what the pods need", belongings(pods), dry)
    _check_pod(kubectl, pods, manifest)


def _check_quotas(kubectl: Kubectl, pods: Pods, manifest: Manifest) -> None:
    """All pods together: the cluster itself would make some of them, and then no more."""
    found = quota_room(manifest["spec"]["template"]["spec"], pods.count, kubectl.quotas())
    never = found.ever < pods.count
    if never or (found.now < pods.count and not _waits_for_room(pods)):
        raise UserError(
            f"the namespace has room for {found.ever if never else found.now} of this job's {pods.count} pods",
            why=found.why,
            remedy="ask for less" + ("" if never else ", wait until others have ended, or --gang"),
        )


def _waits_for_room(pods: Pods) -> bool:
    """Whether a quota that is full only now is no reason to refuse the job."""
    return pods.options.gang or pods.options.queue is not None


def _check_pod(kubectl: Kubectl, pods: Pods, manifest: Mapping[str, Any]) -> None:
    """A pod of the Job: quotas, limits and security policies see pods, not Jobs."""
    template = manifest["spec"]["template"]
    metadata = {**manifest["metadata"], "name": f"{pods.name}-check", **template["metadata"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        kubectl.create("creating pods", [pod], "--dry-run=server")
    except KubectlError as error:
        full_now = _waits_for_room(pods) and "exceeded quota" in error.said  # that it ever has room was checked
        if not error.may_not and not full_now:
            raise UserError(
                "the cluster refuses the pods of this job",
                why=error.said,
                remedy="set --cpus-per-worker and --memory-per-worker as its quota allows; see --run-as, --patch, too",
            ) from error


def cluster_job(run: Path | None) -> KubernetesJob | None:
    """The job that `k8s:JOB` names."""
    text = str(run) if run is not None else ""
    return KubernetesJob.parse(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None


def role_logs(state: JobState, role: str | None) -> Sequence[PodState]:
    """The pods whose logs are asked for, of a role or all. Those that have not begun have none."""
    found = [pod for pod in state.pods if role in (None, pod.role, pod.name)]
    if not found:
        roles = ", ".join(dict.fromkeys(pod.role for pod in state.pods))
        raise UserError(
            f"there is no pod of {role}" if role else "the job has no pods",
            why=f"there are {roles}" if roles else f"it is {state.text}",
            remedy="with --volume-claim, every role also writes its log to RUN/logs on the volume",
        )
    begun = [pod for pod in found if pod.begun]
    if not begun:
        raise UserError(
            f"no pod of {role or 'the job'} has begun",
            why=f"the job is {state.text}",
            remedy="try again when it runs; phalanx status shows the state of each pod",
        )
    return begun
