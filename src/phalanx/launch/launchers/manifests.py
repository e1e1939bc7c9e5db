"""A job as manifests: one indexed Job, whose pods are the trainers and then the servers, and what its pods need.

One Job, since its controller then sees every pod: when one fails, it ends the others; one deletion ends all of them;
queues admit all or none. The Secret, Service and ConfigMap belong to the Job, so they go with it. The headless Service
gives every pod a name that is known in advance.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import EXIT_REFORM, EXIT_USER
from phalanx.launch.env.roles import ELASTIC
from phalanx.launch.launchers.kubernetes_options import KubernetesOptions, pairs, toleration, variable
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.run_files import CODE

FOLDER = "/phalanx"  # the pods' working folder; the volume, if there is one
RECIPE_FOLDER, RECIPE = "/phalanx-recipe", "recipe.yaml"
MASTER_PORT, SERVER_PORT = 29500, 29501
GRACE_S = 120  # for a checkpoint, when a pod is terminated
KEPT_S = 86_400  # that a Job and its logs are kept after its end
CONTAINER = "phalanx"
KEY = "PHALANX_KEY"
SET_FOR_PODS = (KEY, "JOB_COMPLETION_INDEX")  # variables beside `Pods.environment`: from the Secret, and by Kubernetes
QUEUE = "kueue.x-k8s.io/queue-name"
_NAME_LENGTH = 52  # with -INDEX appended still a valid host name

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Pods:
    """The contents of the manifests: `argv` is the command of every pod, `recipe` the text of its recipe file."""

    name: str
    options: KubernetesOptions
    num_trainers: int
    num_servers: int
    argv: Sequence[str]
    key: str
    variables: Mapping[str, str]
    recipe: str | None = None
    master_port: int = MASTER_PORT
    server_port: int = SERVER_PORT
    needs: WorkerResources = field(default_factory=WorkerResources)  # of a pod
    code: Mapping[str, str] = field(default_factory=dict)  # the user's own files: text by name
    max_restarts: int = 0
    time_s: int | None = None  # the job's time limit

    @property
    def count(self) -> int:
        return self.num_trainers + self.num_servers

    @property
    def servers(self) -> list[str]:
        indices = range(self.num_trainers, self.count)
        return [f"tcp://{self.name}-{index}.{self.name}:{self.server_port}" for index in indices]

    @property
    def environment(self) -> dict[str, str]:
        """Every pod's variables. Its role follows from its index, which Kubernetes sets."""
        return {
            "HOME": "/tmp",  # of the container: the user of the pods may have no home
            "LOGNAME": "phalanx",
            "PYTHONUNBUFFERED": "1",
            **self.variables,
            "PHALANX_WORLD": str(self.num_trainers),
            "PHALANX_SERVERS": ",".join(self.servers),
            **({ELASTIC: "1"} if self.options.claim else {}),  # without a volume nothing outlives its pod
            "MASTER_ADDR": f"{self.name}-0.{self.name}",
            "MASTER_PORT": str(self.master_port),
        }


def job_name(run: str) -> str:
    """A run's name as a valid Kubernetes name: lower case, digits and dashes, a letter first (DNS-1035, 1123)."""
    name = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"run-{name}"
    if len(name) > _NAME_LENGTH:  # keep the end: it has the time
        name = f"{name[: _NAME_LENGTH - 17].rstrip('-')}-{name[-16:].lstrip('-')}"
    return name.strip("-")


def labels_of(name: str) -> dict[str, str]:
    """The labels by which the pods of a job are found."""
    return {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/instance": name}


def selector(name: str) -> str:
    return ",".join(f"{key}={value}" for key, value in labels_of(name).items())


def belongings(pods: Pods, owner: str | None = None) -> list[Manifest]:
    """What the pods of the Job with the uid `owner` need. It is deleted with that Job."""
    objects = [
        _manifest(pods, "v1", "Secret", {"type": "Opaque", "immutable": True, "stringData": {"key": pods.key}}),
        _manifest(pods, "v1", "Service", {"spec": _service(pods)}),
    ]
    if pods.recipe is not None:
        code = {_code_key(number): text for number, text in enumerate(pods.code.values())}
        objects.append(_manifest(pods, "v1", "ConfigMap", {"data": {RECIPE: pods.recipe, **code}}))
    if owner is not None:
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": pods.name,
            "uid": owner,
            "blockOwnerDeletion": True,
        }
        for each in objects:
            each["metadata"]["ownerReferences"] = [reference]
    return objects


def job(pods: Pods) -> Manifest:
    """The Job. For a queue it is suspended: it makes no pods until the queue admits it."""
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": pods.count,
        "parallelism": pods.count,
        "backoffLimit": pods.max_restarts,
        "podFailurePolicy": {"rules": _failure_rules(pods.max_restarts)},
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": _labels(pods)}, "spec": pod_spec(pods)},
    }
    if pods.time_s is not None:
        spec["activeDeadlineSeconds"] = pods.time_s
    if pods.options.queue:
        spec["suspend"] = True
    made = _manifest(pods, "batch/v1", "Job", {"spec": spec})
    if pods.options.queue:
        made["metadata"]["labels"][QUEUE] = pods.options.queue
    return made


def _failure_rules(max_restarts: int) -> list[Manifest]:
    """What follows when a pod fails. The message of a FailJob rule names the pod and its code.

    With restarts, a pod that fails counts as one; survivors that saved (EXIT_REFORM) and pods that the cluster removed
    (a drained node, preemption) start again without counting. A user's mistake would only be repeated.
    """
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]

    def exits(operator: str, code: int) -> Manifest:
        return {"containerName": CONTAINER, "operator": operator, "values": [code]}

    if max_restarts:
        return [
            {"action": "Ignore", "onPodConditions": disrupted},
            {"action": "Ignore", "onExitCodes": exits("In", EXIT_REFORM)},
            {"action": "FailJob", "onExitCodes": exits("In", EXIT_USER)},
        ]
    return [
        {"action": "FailJob", "onPodConditions": disrupted},
        {"action": "FailJob", "onExitCodes": exits("NotIn", 0)},
    ]


def _manifest(pods: Pods, version: str, kind: str, rest: Manifest) -> Manifest:
    metadata: Manifest = {"name": pods.name, "labels": _labels(pods)}
    if pods.options.namespace:
        metadata["namespace"] = pods.options.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _labels(pods: Pods) -> dict[str, str]:
    return {**pairs(pods.options.labels, "--label"), **labels_of(pods.name)}


def _service(pods: Pods) -> Manifest:
    """Publishes names at once: roles connect to one another before any is ready."""
    ports = [("master", pods.master_port), *([("server", pods.server_port)] if pods.num_servers else [])]
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels_of(pods.name),
        "ports": [{"name": name, "port": port} for name, port in ports],
    }


def pod_spec(pods: Pods) -> Manifest:
    options = pods.options
    volumes, mounts = volume(options.claim)
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})  # the default's 64 MB are too few for NCCL
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if pods.recipe is not None:
        volumes.append({"name": "recipe", "configMap": {"name": pods.name, **_paths(pods)}})
        mounts.append({"name": "recipe", "mountPath": RECIPE_FOLDER, "readOnly": True})
    spec: Manifest = {
        "restartPolicy": "Never",
        "subdomain": pods.name,
        # Process 1 of a container ignores SIGTERM until it has a handler. With this, our process is not number 1.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **security(options.run_as),
        "containers": [
            {
                "name": CONTAINER,
                "image": options.image,
                "command": [literal(word) for word in pods.argv],
                "workingDir": FOLDER,
                "env": _environment(pods),
                "resources": _resources(pods.needs),
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",  # `kubectl describe` then shows the error
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    if options.node_selector:
        spec["nodeSelector"] = pairs(options.node_selector, "--node-selector")
    if options.tolerations:
        spec["tolerations"] = [toleration(text) for text in options.tolerations]
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    return spec


def volume(claim: str | None) -> tuple[list[Manifest], list[Manifest]]:
    """The pods' folder: the volume and its mount."""
    place: Manifest = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    return [{"name": "folder", **place}], [{"name": "folder", "mountPath": FOLDER}]


def security(user: int) -> Manifest:
    """What the "restricted" Pod Security profile demands of a pod, except for root."""
    context: Manifest = {"runAsUser": user, "seccompProfile": {"type": "RuntimeDefault"}}
    if user:
        context |= {"runAsNonRoot": True, "runAsGroup": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    return {"securityContext": context}


def container_security() -> Manifest:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _code_key(number: int) -> str:
    return f"code-{number}"  # a key has no slashes, and a path may


def _paths(pods: Pods) -> Manifest:
    """Where the parts of the ConfigMap are seen: the recipe, and the user's code beside it."""
    if not pods.code:
        return {}
    code = [{"key": _code_key(number), "path": f"{CODE}/{name}"} for number, name in enumerate(pods.code)]
    return {"items": [{"key": RECIPE, "path": RECIPE}, *code]}


def _environment(pods: Pods) -> list[Manifest]:
    """The variables of the pods, and the key, from the Secret."""
    own = {name: value for name, _, value in map(variable, pods.options.env)}
    secret = {"name": KEY, "valueFrom": {"secretKeyRef": {"name": pods.name, "key": "key"}}}
    return [secret, *({"name": name, "value": literal(value)} for name, value in {**pods.environment, **own}.items())]


def _resources(needs: WorkerResources) -> Manifest:
    """Requests are limits, too: a process takes as many threads as its limit allows, and quotas may demand both."""
    amounts = {"cpu": needs.cpus, "memory": f"{needs.memory_mb}M" if needs.memory_mb else None}
    own = {name: str(one) for name, one in amounts.items() if one}
    limits = own | ({"nvidia.com/gpu": str(needs.gpus)} if needs.gpus else {})
    return {kind: values for kind, values in (("requests", own), ("limits", limits)) if values}


def literal(text: str) -> str:
    """Escape a text: Kubernetes replaces $(NAME) by variables, and $$ by $."""
    return text.replace("$", "$$")
