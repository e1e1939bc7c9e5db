"""kubectl, the only client: what a user can do with it, the launcher can do, with the same credentials."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.errors import UserError
from phalanx.launch.launchers.scheduler import without_key
from phalanx.launch.multi_host import require

_TIMEOUT = "--request-timeout=20s"


class KubectlError(UserError):
    """kubectl has failed; `said` is its message."""

    def __init__(self, doing: str, said: str) -> None:
        self.said = said
        super().__init__(f"{doing} failed", why=said, remedy="correct that, and try again")

    @property
    def not_found(self) -> bool:
        return "(NotFound)" in self.said

    @property
    def may_not(self) -> bool:
        """Whether the user lacks the right to ask; a refusal by a quota or a policy is another thing."""
        return "(Forbidden)" in self.said and "cannot " in self.said


class Kubectl:
    """kubectl in a namespace; by default that of its current context."""

    def __init__(self, namespace: str | None = None) -> None:
        self.namespace = namespace

    def argv(self, *words: str) -> list[str]:
        return ["kubectl", *(["-n", self.namespace] if self.namespace else []), *words]

    def run(self, doing: str, *words: str, given: str | None = None, timeout: str = _TIMEOUT) -> str:
        """Run it and return what it prints."""
        require("kubectl", "kubernetes-client")
        argv = self.argv(*words, *([timeout] if timeout else []))
        done = subprocess.run(argv, input=given, capture_output=True, text=True, errors="replace", env=without_key())
        if done.returncode != 0:
            lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("Warning:")]
            raise KubectlError(doing, " / ".join(lines[-3:])[:1000] or f"exit code {done.returncode}")
        return done.stdout

    def objects(self, doing: str, *words: str) -> list[dict[str, Any]]:
        """The objects that `kubectl get` finds."""
        found = json.loads(self.run(doing, "get", *words, "-o", "json"))
        return list(found["items"]) if "items" in found else [found]

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is such an object; true also where the user may not ask."""
        try:
            self.run(f"looking for {kind} {name}", "get", kind, name, "-o", "name")
        except KubectlError as error:
            if error.not_found or "doesn't have a resource type" in error.said:
                return False
            if not error.may_not:
                raise
        return True

    def quotas(self) -> list[dict[str, Any]]:
        """The namespace's quotas; none where the user may not ask."""
        try:
            return self.objects("looking at quotas", "resourcequotas")
        except KubectlError as error:
            if not error.may_not:
                raise
            return []

    def create(self, doing: str, manifests: Sequence[Mapping[str, Any]], *options: str) -> list[dict[str, Any]]:
        """Create objects. Not `apply`: that changes what is there already, and copies a Secret into an annotation."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        found = self.run(doing, "create", "-f", "-", "-o", "json", *options, given=text)
        return _documents(found)


def _documents(text: str) -> list[dict[str, Any]]:
    """kubectl prints several objects one after the other, or as a list."""
    decoder, at = json.JSONDecoder(), 0
    found: list[dict[str, Any]] = []
    while at < len(text.rstrip()):
        one, end = decoder.raw_decode(text, at)
        found += one["items"] if one.get("kind") == "List" else [one]
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found
