#!/usr/bin/env python3
"""A stand-in for kubectl, for tests without a cluster: it keeps objects as JSON files in $KUBECTL_FOLDER.

It knows the commands that the launcher uses, and no controller: a test plays the cluster by changing the files. What a
cluster does with a job is measured on a real one, by benchmarks/kubernetes_faults.py.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["KUBECTL_FOLDER"])
KINDS = {"jobs": "Job", "job": "Job", "pods": "Pod", "pod": "Pod", "pvc": "PersistentVolumeClaim", "events": "Event"}


def emit(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def fail(text: str) -> None:
    sys.exit(f"Error from server {text}")


def path_of(kind: str, name: str) -> Path:
    return FOLDER / f"{kind}.{name}.json"


def put(path: Path, one: Any) -> None:
    """Whole or not at all: others read it meanwhile."""
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(one))
    new.replace(path)


def create(words: list[str]) -> None:
    for one in json.load(sys.stdin)["items"]:
        kind, name = one["kind"], one["metadata"]["name"]
        if (FOLDER / f"refuse-{kind}").exists():
            fail(f"(Forbidden): {kind} {name} is forbidden: exceeded quota: small")
        if path_of(kind, name).exists():
            fail(f"(AlreadyExists): {kind} {name} already exists")
        one["metadata"]["uid"] = f"uid-of-{name}"
        if "--dry-run=server" not in words:
            put(path_of(kind, name), one)
        emit(json.dumps(one))


def get(words: list[str]) -> None:
    kinds = [KINDS.get(one, one) for one in words[0].split(",")]
    names = [one for one in words[1:2] if not one.startswith("-")]
    found = [json.loads(path.read_text()) for kind in kinds for path in sorted(FOLDER.glob(f"{kind}.*.json"))]
    if names:
        found = [one for one in found if one["metadata"]["name"] == names[0]]
        if not found:
            fail(f"(NotFound): {names[0]} not found")
        emit(json.dumps(found[0]))
    else:
        emit(json.dumps({"items": found}))


def patch(words: list[str]) -> None:
    path = path_of("Job", words[1])
    one: dict[str, Any] = json.loads(path.read_text())
    one["spec"] |= json.loads(words[words.index("-p") + 1])["spec"]
    put(path, one)


def delete(words: list[str]) -> None:
    """A Job takes what it owns with it."""
    for path in FOLDER.glob("*.json"):
        one = json.loads(path.read_text())
        owners = [each["name"] for each in one["metadata"].get("ownerReferences", [])]
        if words[1] in owners or (one["kind"] == KINDS[words[0]] and one["metadata"]["name"] == words[1]):
            path.unlink()


def logs(words: list[str]) -> None:
    emit(f"a line of {words[0]}")


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
    with (FOLDER / "said").open("a") as said:
        said.write(" ".join(words) + "\n")
    if words[0] == "-n":
        words = words[2:]
    commands = {"create": create, "get": get, "patch": patch, "delete": delete, "logs": logs}
    commands[words[0]](words[1:])


if __name__ == "__main__":
    main()
