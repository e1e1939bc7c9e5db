"""`--launcher yarn`: agents in containers of a YARN service (Hadoop 3.1.1 and later), over the REST interface.

It uses `/app/v1/services` and not the older interface for applications, which needs an application master that
registers itself by Hadoop's own protocol, or YARN ends the application after ten minutes.
"""

import getpass
import json
import shlex
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import parse_time, share
from phalanx.launch.launchers.callback_agent import CALLBACK
from phalanx.launch.launchers.callback_hosts import agent_count, supervise_callbacks
from phalanx.launch.launchers.manifests import job_name
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import HostCheck
from phalanx.observe.tables import print_line

MEMORY_MB = 4096  # of a worker, by default; YARN has no default of its own
_PATH = "/app/v1/services"
_TIMEOUT_S = 30
_OVER = ("STOPPED", "FAILED", "SUCCEEDED")


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job in containers, or show what it would request."""
    cluster = _yarn(plan)
    if plan.dry_run:
        print_line(console, f"would post to {cluster.url}/app/v1/services:")
        for line in json.dumps(cluster.service("CALLBACK"), indent=2).splitlines():
            print_line(console, f"  {line}")
        return 0
    return supervise_callbacks(plan, cluster, console)


def _yarn(plan: LaunchPlan) -> "Yarn":
    parts = urlsplit(plan.resource_manager or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"--resource-manager {plan.resource_manager!r} is not an address"
            if plan.resource_manager
            else "--launcher yarn needs --resource-manager",
            why="jobs are submitted to its web interface",
            remedy="--resource-manager http://HOST:8088",
        )
    config = plan.request.resolved.config
    agents = agent_count(plan)
    needs = WorkerResources(plan.needs.cpus or 1, plan.needs.gpus, plan.needs.memory_mb or MEMORY_MB)
    return Yarn(
        url=(plan.resource_manager or "").rstrip("/"),
        name=job_name(f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"),
        num_agents=agents,
        needs=needs.times(share(config.exchange.workers, agents)),
        python=plan.python or sys.executable,
        queue=plan.batch.partition,
        lifetime_s=parse_time(plan.batch.time) if plan.batch.time else None,
    )


@dataclass
class Yarn:
    """A service of `num_agents` containers, each with an agent."""

    check: ClassVar[HostCheck] = HostCheck("YARN", "yarn node -list -all")
    url: str  # of the ResourceManager
    name: str
    num_agents: int
    needs: WorkerResources
    python: str
    queue: str | None = None
    lifetime_s: int | None = None
    submitted: bool = False

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""

    def submit(self, callback: str) -> None:
        self.submitted = True  # without an answer, YARN may still have got it
        self._call("POST", "", self.service(callback))

    def service(self, callback: str) -> dict[str, Any]:
        """The service to post. Only `launch_command` is read by a shell."""
        gpus = {"yarn.io/gpu": {"value": self.needs.gpus, "unit": ""}} if self.needs.gpus else {}
        worker = {
            "name": "worker",
            "number_of_containers": self.num_agents,
            "launch_command": shlex.join([self.python, "-m", "phalanx.launch.launchers.callback_agent"]),
            "restart_policy": "NEVER",
            "resource": {
                "cpus": self.needs.cpus,
                "memory": str(self.needs.memory_mb),
                **({"additional": gpus} if gpus else {}),
            },
            "configuration": {"env": {CALLBACK: callback}},
        }
        return {
            "name": self.name,
            "version": "1.0",
            **({"queue": self.queue} if self.queue else {}),
            **({"lifetime": self.lifetime_s} if self.lifetime_s else {}),
            "components": [worker],
        }

    def status(self) -> str:
        reply = self._call("GET", f"/{self.name}")
        state = str(reply.get("state", "unknown"))
        if state in _OVER:
            raise UserError(
                f"YARN ended the service {self.name}: {state}",
                why=str(reply.get("diagnostics") or "YARN gives no reason"),
                remedy=f"see the containers' logs: yarn logs -applicationId {reply.get('id', 'ID')}; each host needs "
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
                return {}  # already deleted
            raise self._refused(error) from error
        except OSError as error:
            raise UserError(
                f"the ResourceManager at {self.url} does not answer",
                why=str(getattr(error, "reason", error)),
                remedy="check --resource-manager, such as http://rm:8088",
            ) from error

    def _refused(self, error: urllib.error.HTTPError) -> UserError:
        text = str(_object(error.read()).get("diagnostics") or error.reason)
        if error.code in (401, 403):
            remedy = "Phalanx sends the user name only; Kerberos is not supported"
        elif error.code == 404:
            remedy = "set yarn.webapp.api-service.enable to true on the ResourceManager (Hadoop 3.1.1 or later)"
        else:
            remedy = "see the ResourceManager's log"
        return UserError(f"{self.url} refused ({error.code})", why=text, remedy=remedy)


def _object(content: bytes) -> dict[str, Any]:
    """The JSON object of a reply; empty for a web server's error page."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
