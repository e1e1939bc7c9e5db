"""YARN: containers of a service, asked for through the ResourceManager's REST interface (Hadoop 3.1.1 and later).

The service interface (`/app/v1/services`) is used, and not the older one for applications: there an application must
bring a master that registers itself by Hadoop's own protocol, or it is ended after ten minutes.
"""

import getpass
import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, ClassVar

from phalanx.errors import UserError
from phalanx.launch.launchers.callback_agent import INVITATION
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.remote_shell import Way

_PATH = "/app/v1/services"
_TIMEOUT_S = 30
_OVER = ("STOPPED", "FAILED", "SUCCEEDED")


@dataclass
class Yarn:
    """A service of `num_places` containers, each with an agent."""

    way: ClassVar[Way] = Way("YARN", "yarn node -list -all")
    url: str  # of the ResourceManager
    name: str
    num_places: int
    needs: WorkerResources
    python: str
    queue: str | None = None
    lifetime_s: int | None = None
    submitted: bool = False

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""

    def submit(self, invitation: str) -> None:
        self.submitted = True  # even if no answer comes, YARN may have got it
        self._call("POST", "", self.service(invitation))

    def service(self, invitation: str) -> dict[str, Any]:
        """What is posted. The command is the one text here that a shell reads."""
        more = {"yarn.io/gpu": {"value": self.needs.gpus, "unit": ""}} if self.needs.gpus else {}
        worker = {
            "name": "worker",
            "number_of_containers": self.num_places,
            "launch_command": shlex.join([self.python, "-m", "phalanx.launch.launchers.callback_agent"]),
            "restart_policy": "NEVER",
            "resource": {
                "cpus": self.needs.cpus,
                "memory": str(self.needs.memory_mb),
                **({"additional": more} if more else {}),
            },
            "configuration": {"env": {INVITATION: invitation}},
        }
        return {
            "name": self.name,
            "version": "1.0",
            **({"queue": self.queue} if self.queue else {}),
            **({"lifetime": self.lifetime_s} if self.lifetime_s else {}),
            "components": [worker],
        }

    def standing(self) -> str:
        told = self._call("GET", f"/{self.name}")
        state = str(told.get("state", "unknown"))
        if state in _OVER:
            raise UserError(
                f"YARN has ended the service {self.name}: {state}",
                why=str(told.get("diagnostics") or "it gives no reason"),
                remedy=f"see the containers' logs: yarn logs -applicationId {told.get('id', 'ID')}; each host needs "
                f"{self.python} with this Phalanx",
            )
        return f"YARN: {self.name} is {state}"

    def end(self) -> None:
        if self.submitted:
            self.submitted = False
            self._call("DELETE", f"/{self.name}")

    def _call(self, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        user = urllib.parse.urlencode({"user.name": getpass.getuser()})
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}{_PATH}{path}?{user}",
            data=json.dumps(content).encode() if content is not None else None,
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return _object(answer.read())
        except urllib.error.HTTPError as error:
            if method == "DELETE" and error.code == 404:
                return {}  # it is gone already
            raise self._refused(error) from error
        except OSError as error:
            raise UserError(
                f"the ResourceManager at {self.url} does not answer",
                why=str(getattr(error, "reason", error)),
                remedy="check --resource-manager, such as http://rm:8088",
            ) from error

    def _refused(self, error: urllib.error.HTTPError) -> UserError:
        said = str(_object(error.read()).get("diagnostics") or error.reason)
        if error.code in (401, 403):
            remedy = "Phalanx tells its user's name and nothing more; Kerberos is not supported"
        elif error.code == 404:
            remedy = "have yarn.webapp.api-service.enable set to true on the ResourceManager (Hadoop 3.1.1 or later)"
        else:
            remedy = "see the ResourceManager's log"
        return UserError(f"{self.url} refused ({error.code})", why=said, remedy=remedy)


def _object(content: bytes) -> dict[str, Any]:
    """An answer's JSON; error pages of a web server are none."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
