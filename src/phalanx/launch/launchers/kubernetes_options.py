"""The options of `--launcher k8s`, and the refusal of values that no cluster would take."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.errors import UserError

USER = 1000  # of the processes in pods: not root, as clusters that enforce the "restricted" profile demand
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")  # of objects: RFC 1123
_NAMESPACE = re.compile(_LABEL)
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class KubernetesOptions:
    """`claim` is a PersistentVolumeClaim for data and runs; `resume` the run to continue, by its path in the pods."""

    image: str | None = None
    namespace: str | None = None
    claim: str | None = None
    run_as: int = USER
    pull_secrets: tuple[str, ...] = ()
    node_selector: tuple[str, ...] = ()  # KEY=VALUE
    tolerations: tuple[str, ...] = ()  # KEY, KEY=VALUE, either with :EFFECT
    env: tuple[str, ...] = ()  # NAME=VALUE
    labels: tuple[str, ...] = ()  # KEY=VALUE
    queue: str | None = None  # of Kueue
    priority_class: str | None = None
    patch: str | None = None  # a file
    gang: bool = False
    resume: str | None = None


def refuse_options(options: KubernetesOptions, own_variables: Iterable[str]) -> None:
    """Refuse what is not a name or has not the form that its option needs. `own_variables` are the launcher's."""
    if not options.image or re.search(r"\s", options.image):
        raise UserError(
            "--launcher k8s needs --image" if not options.image else f"--image {options.image!r} is not an image",
            why="pods are started from an image that has Python and this Phalanx",
            remedy="--image REGISTRY/NAME:TAG",
        )
    _refuse_name("--namespace", options.namespace, _NAMESPACE, "kubectl get namespaces")
    _refuse_name("--volume-claim", options.claim, _NAME, "kubectl get pvc")
    _refuse_name("--queue", options.queue, _NAME, "kubectl get localqueues")
    _refuse_name("--priority-class", options.priority_class, _NAME, "kubectl get priorityclasses")
    for name in options.pull_secrets:
        _refuse_name("--image-pull-secret", name, _NAME, "kubectl get secrets")
    pairs(options.labels, "--label")
    pairs(options.node_selector, "--node-selector")
    for text in options.tolerations:
        toleration(text)
    taken = set(own_variables)
    for text in options.env:
        name, _, _ = variable(text)
        if name in taken:
            raise UserError(
                f"--env {name} cannot be set",
                why="the launcher sets it, for the role of each pod",
                remedy="leave it out",
            )


def _refuse_name(option: str, name: str | None, form: "re.Pattern[str]", lists: str) -> None:
    if name is not None and not form.fullmatch(name):
        dots = ", digits and dashes" if form is _NAMESPACE else ", digits, dashes and dots"
        raise UserError(
            f"{option} {name!r} is not a Kubernetes name",
            why=f"names are lower case letters{dots}, and begin and end with a letter or digit",
            remedy=f"{lists} shows them",
        )


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Labels by key."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            raise UserError(
                f"{option} {text!r} is not KEY=VALUE of labels",
                why="keys and values are letters, digits, dashes, dots and underscores, at most 63",
                remedy=f"such as {option} team=vision",
            )
        found[key] = value
    return found


def toleration(text: str) -> dict[str, str]:
    """KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT, as `kubectl taint` writes them."""
    rest, colon, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)) or (colon and effect not in _EFFECTS):
        raise UserError(
            f"--toleration {text!r} is not a taint",
            why=f"a taint is KEY, KEY=VALUE or KEY=VALUE:EFFECT, with one of {', '.join(_EFFECTS)}",
            remedy="such as --toleration gpu=yes:NoSchedule; kubectl describe nodes shows the taints",
        )
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    return found | ({"value": value} if equals else {}) | ({"effect": effect} if colon else {})


def variable(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise UserError(
            f"--env {text!r} is not NAME=VALUE",
            why="names are letters, digits and underscores",
            remedy="such as --env NCCL_DEBUG=INFO",
        )
    return name, equals, value
