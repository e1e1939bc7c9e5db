"""`--launcher ray`: agents in actors of a Ray placement group. Restarts are up to our supervisor, not to Ray."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import share
from phalanx.launch.launchers.callback_agent import CALLBACK
from phalanx.launch.launchers.callback_hosts import agent_count, supervise_callbacks
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import HostCheck
from phalanx.observe.tables import print_line

_CONNECT_S = 10.0


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job on the cluster, or show what it would request."""
    agents = agent_count(plan)
    needs = replace(plan.needs, cpus=plan.needs.cpus or 1)
    cluster = RayCluster(
        plan.ray_address,
        agents,
        needs.times(share(plan.request.resolved.config.exchange.workers, agents)),
        strict=plan.batch.nodes is not None,
        python=plan.python,
    )
    if plan.dry_run:
        where = plan.ray_address or "a running one, or a new one on this machine"
        print_line(console, f"Ray cluster: {where}")
        print_line(console, f"placement group: {cluster.strategy}, {agents} bundles of {cluster.bundle}")
        print_line(console, "each with an actor that runs: python -m phalanx.launch.launchers.callback_agent")
        return 0
    cluster.connect()
    return supervise_callbacks(plan, cluster, console)


class AgentActor:
    """A Ray actor that runs an agent as a child process, which ends with the actor."""

    def run(self, callback: str, python: str | None) -> int:
        """Run an agent to its end. Returns its exit code."""
        environment = {**os.environ, CALLBACK: callback, "PHALANX_LIFELINE": "stdin"}
        argv = [python or sys.executable, "-m", "phalanx.launch.launchers.callback_agent"]
        return subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, start_new_session=True).wait()


@dataclass
class RayCluster:
    """A placement group with an agent in each bundle. With `strict` each is on a different host."""

    check: ClassVar[HostCheck] = HostCheck("Ray", "ray status")
    address: str | None
    num_agents: int
    needs: WorkerResources  # of one agent's workers
    strict: bool = False
    python: str | None = None
    host: str = ""
    _ray: Any = None
    _group: Any = None
    _actors: list[Any] = field(default_factory=list)
    _results: list[Any] = field(default_factory=list)

    @property
    def strategy(self) -> str:
        return "STRICT_SPREAD" if self.strict else "SPREAD"

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one agent, in Ray's units."""
        memory = self.needs.memory_mb and self.needs.memory_mb * 10**6
        amounts = {"CPU": self.needs.cpus, "GPU": self.needs.gpus, "memory": memory}
        return {name: float(amount) for name, amount in amounts.items() if amount}

    def connect(self) -> None:
        """Connect to the cluster. Without an address, use a running one or start one on this machine."""
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "ray is not installed", why="--launcher ray needs it", remedy="pip install 'phalanx[ray]'"
            ) from error
        _check_address(self.address)
        try:
            self._init(ray)
        except Exception as error:  # Ray raises many kinds
            raise UserError(
                f"cannot use the Ray cluster {self.address or ''}".rstrip(),
                why=str(error).strip().split("\n")[0][:300] or type(error).__name__,
                remedy="check --address: HOST:6379, ray://HOST:10001, or auto; and RAY_AUTH_TOKEN_PATH",
            ) from error
        self._ray = ray
        self.host = next(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])

    def _init(self, ray: Any) -> None:
        if self.address is not None:
            ray.init(address=self.address, logging_level="ERROR")
            return
        try:
            ray.init(address="auto", logging_level="ERROR")
        except ConnectionError:  # none runs: start one here, with a single agent
            self.needs, self.num_agents, self.strict = self.needs.times(self.num_agents), 1, False
            cpus = max(os.cpu_count() or 1, self.needs.cpus or 0)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, logging_level="ERROR")

    def submit(self, callback: str) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = self.bundle
        self._group = placement_group([bundle] * self.num_agents, strategy=self.strategy)
        actor = self._ray.remote(max_restarts=0)(AgentActor)
        for number in range(self.num_agents):
            self._actors.append(
                actor.options(
                    num_cpus=bundle.get("CPU", 0),
                    num_gpus=bundle.get("GPU", 0),
                    memory=bundle.get("memory"),
                    scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, number),
                ).remote()
            )
        self._results = [actor.run.remote(callback, self.python) for actor in self._actors]

    def status(self) -> str:
        ended, _ = self._ray.wait(self._results, timeout=0)
        if ended:
            raise UserError(
                "an agent on the Ray cluster has ended", why=self._why(ended[0]), remedy="see Ray's logs of that actor"
            )
        state = self._ray.util.placement_group_table(self._group)["state"]
        return f"Ray: the placement group is {state}"

    def end(self) -> None:
        if self._ray is not None and self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)
            if self._group is not None:
                self._ray.util.remove_placement_group(self._group)
            self._ray.shutdown()

    def _why(self, result: Any) -> str:
        try:
            return f"it ended with code {self._ray.get(result)}"
        except Exception as error:  # Ray's message about the actor
            return str(error).strip().split("\n")[0][:300]


def _check_address(address: str | None) -> None:
    """Raise if nothing listens there. Ray itself would try for minutes, and then end the process."""
    parts = urlsplit(address if address and "//" in address else f"//{address or ''}")
    try:
        if parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at {address}",
            why=getattr(error, "strerror", None) or str(error),
            remedy="check --address: HOST:6379, ray://HOST:10001, or auto; run `ray status` on the head",
        ) from error
