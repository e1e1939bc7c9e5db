"""A job as manifests: Kubernetes starts the roles, keeps their logs and ends them; no launcher stays.

Trainers are an indexed Job, servers another. A headless Service gives every pod a name that is known in advance.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import UserError
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.run_files import CODE

FOLDER = "/phalanx"  # the pods' working folder; the volume, if there is one
RECIPE_FOLDER, RECIPE = "/phalanx-recipe", "recipe.yaml"
MASTER_PORT, SERVER_PORT = 29500, 29501
GRACE_S = 120  # for a checkpoint, when a pod is terminated
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME_LENGTH = 40  # with -trainer-INDEX appended still a valid host name

Manifest = dict[str, Any]


@dataclass(frozen=True)
class KubernetesOptions:
    """The user's options. `claim` is a PersistentVolumeClaim for data and runs."""

    image: str | None = None
    namespace: str | None = None
    claim: str | None = None
    apply: bool = False


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
    needs: WorkerResources = field(default_factory=WorkerResources)  # of a trainer
    code: Mapping[str, str] = field(default_factory=dict)  # the user's own files: text by name

    @property
    def servers(self) -> list[str]:
        return [f"tcp://{self.name}-server-{index}.{self.name}:{self.server_port}" for index in range(self.num_servers)]


def job_name(run: str) -> str:
    """A run's name as a valid Kubernetes name: lower case, digits and dashes, a letter first (DNS-1035, 1123)."""
    name = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"run-{name}"
    if len(name) > _NAME_LENGTH:  # keep the end: it has the time
        name = f"{name[: _NAME_LENGTH - 17].rstrip('-')}-{name[-16:].lstrip('-')}"
    return name.strip("-")


def refuse_name(option: str, name: str | None) -> None:
    if name is not None and not _LABEL.fullmatch(name):
        raise UserError(
            f"{option} {name!r} is not a Kubernetes name",
            why="names are lower case letters, digits and dashes, begin with a letter, and are at most 63 long",
            remedy=f"kubectl get {'namespaces' if option == '--namespace' else 'pvc'} lists them",
        )


def manifests(pods: Pods) -> list[Manifest]:
    """All objects of a job, in the order of their use."""
    objects = [
        _manifest(pods, "v1", "Secret", pods.name, {"type": "Opaque", "stringData": {"key": pods.key}}),
        _manifest(pods, "v1", "Service", pods.name, {"spec": _service(pods)}),
    ]
    if pods.recipe is not None:
        code = {_code_key(number): text for number, text in enumerate(pods.code.values())}
        objects.append(_manifest(pods, "v1", "ConfigMap", pods.name, {"data": {RECIPE: pods.recipe, **code}}))
    for kind, count in (("server", pods.num_servers), ("trainer", pods.num_trainers)):
        if count:
            job = {"spec": _job(pods, kind, count)}
            objects.append(_manifest(pods, "batch/v1", "Job", f"{pods.name}-{kind}", job))
    return objects


def _manifest(pods: Pods, version: str, kind: str, name: str, rest: Manifest) -> Manifest:
    metadata: Manifest = {"name": name, "labels": _labels(pods)}
    if pods.options.namespace:
        metadata["namespace"] = pods.options.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _labels(pods: Pods) -> dict[str, str]:
    return {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/instance": pods.name}


def _service(pods: Pods) -> Manifest:
    """Publishes names at once: roles connect to one another before any is ready."""
    ports = [("master", pods.master_port), *([("server", pods.server_port)] if pods.num_servers else [])]
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(pods),
        "ports": [{"name": name, "port": port} for name, port in ports],
    }


def _job(pods: Pods, kind: str, count: int) -> Manifest:
    """No restarts of single pods: the others would be at another step. A failed pod ends the Job."""
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "template": {
            "metadata": {"labels": {**_labels(pods), "app.kubernetes.io/component": kind}},
            "spec": _pod(pods, kind, count),
        },
    }


def _pod(pods: Pods, kind: str, count: int) -> Manifest:
    claim = pods.options.claim
    volumes: list[Manifest] = [
        {"name": "folder", **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}})}
    ]
    mounts: list[Manifest] = [{"name": "folder", "mountPath": FOLDER}]
    if pods.recipe is not None:
        volumes.append({"name": "recipe", "configMap": {"name": pods.name, **_paths(pods)}})
        mounts.append({"name": "recipe", "mountPath": RECIPE_FOLDER, "readOnly": True})
    container: Manifest = {
        "name": kind,
        "image": pods.options.image,
        "command": [literal(word) for word in pods.argv],
        "workingDir": FOLDER,
        "env": _environment(pods, kind, count),
        "volumeMounts": mounts,
    }
    if kind == "trainer":
        container["resources"] = _resources(pods.needs)
    return {
        "restartPolicy": "Never",
        "subdomain": pods.name,
        # Process 1 of a container ignores SIGTERM until it has a handler. With this, our process is not number 1.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
    }


def _code_key(number: int) -> str:
    return f"code-{number}"  # a key has no slashes, and a path may


def _paths(pods: Pods) -> Manifest:
    """Where the parts of the ConfigMap are seen: the recipe, and the user's code beside it."""
    if not pods.code:
        return {}
    code = [{"key": _code_key(number), "path": f"{CODE}/{name}"} for number, name in enumerate(pods.code)]
    return {"items": [{"key": RECIPE, "path": RECIPE}, *code]}


def _environment(pods: Pods, kind: str, count: int) -> list[Manifest]:
    """The role of a pod. Its rank is JOB_COMPLETION_INDEX, which Kubernetes sets."""
    variables = {
        **pods.variables,
        "PHALANX_ROLE": kind,
        "PHALANX_WORLD": str(count),
        "PHALANX_SERVERS": ",".join(pods.servers),
        "MASTER_ADDR": f"{pods.name}-trainer-0.{pods.name}",
        "MASTER_PORT": str(pods.master_port),
    }
    secret = {"name": "PHALANX_KEY", "valueFrom": {"secretKeyRef": {"name": pods.name, "key": "key"}}}
    return [secret, *({"name": name, "value": literal(value)} for name, value in variables.items())]


def _resources(needs: WorkerResources) -> Manifest:
    requests = {"cpu": needs.cpus, "memory": f"{needs.memory_mb}M" if needs.memory_mb else None}
    resources: Manifest = {"requests": requests, "limits": {"nvidia.com/gpu": needs.gpus}}
    return {kind: {name: str(one) for name, one in values.items() if one} for kind, values in resources.items()}


def literal(text: str) -> str:
    """Escape a text: Kubernetes replaces $(NAME) by variables, and $$ by $."""
    return text.replace("$", "$$")
