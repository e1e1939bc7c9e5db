"""Ray: a placement group, and an actor at each of its places that holds an agent. Restarts are left to our logic."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from phalanx.errors import UserError
from phalanx.launch.launchers.callback_agent import INVITATION
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.remote_shell import Way

_KNOCK_S = 10.0


class Post:
    """Lives on a Ray node. The agent is a process of its own, which ends with this one, however it ends."""

    def hold(self, invitation: str, python: str | None) -> int:
        """Start an agent, and stay until it ends. Its code."""
        told = {**os.environ, INVITATION: invitation, "PHALANX_LIFELINE": "stdin"}
        argv = [python or sys.executable, "-m", "phalanx.launch.launchers.callback_agent"]
        return subprocess.Popen(argv, env=told, stdin=subprocess.PIPE, start_new_session=True).wait()


@dataclass
class RayCluster:
    """Places of a Ray cluster. With `strict` each is on a host of its own."""

    way: ClassVar[Way] = Way("Ray", "ray status")
    address: str | None
    num_places: int
    needs: WorkerResources  # of a place
    strict: bool = False
    python: str | None = None
    host: str = ""
    _ray: Any = None
    _group: Any = None
    _posts: list[Any] = field(default_factory=list)
    _held: list[Any] = field(default_factory=list)

    @property
    def strategy(self) -> str:
        return "STRICT_SPREAD" if self.strict else "SPREAD"

    @property
    def bundle(self) -> dict[str, float]:
        """What a place has, in Ray's units."""
        memory = self.needs.memory_mb and self.needs.memory_mb * 10**6
        wanted = {"CPU": self.needs.cpus, "GPU": self.needs.gpus, "memory": memory}
        return {name: float(amount) for name, amount in wanted.items() if amount}

    def connect(self) -> None:
        """Join the cluster, or start one on this machine where none is named or found."""
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "ray is not installed", why="--launcher ray needs it", remedy="pip install 'phalanx[ray]'"
            ) from error
        _knock(self.address)
        try:
            self._join(ray)
        except Exception as error:  # Ray raises many kinds
            raise UserError(
                f"the Ray cluster {self.address or 'for this job'} cannot be had",
                why=str(error).strip().split("\n")[0][:300] or type(error).__name__,
                remedy="check --address: HOST:6379, ray://HOST:10001, or auto; and RAY_AUTH_TOKEN_PATH",
            ) from error
        self._ray = ray
        self.host = next(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])

    def _join(self, ray: Any) -> None:
        if self.address is not None:
            ray.init(address=self.address, logging_level="ERROR")
            return
        try:
            ray.init(address="auto", logging_level="ERROR")
        except ConnectionError:  # there is none: a machine of its own is one place
            self.needs, self.num_places, self.strict = self.needs.times(self.num_places), 1, False
            cpus = max(os.cpu_count() or 1, self.needs.cpus or 0)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, logging_level="ERROR")

    def submit(self, invitation: str) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = self.bundle
        self._group = placement_group([bundle] * self.num_places, strategy=self.strategy)
        post = self._ray.remote(max_restarts=0)(Post)
        for number in range(self.num_places):
            self._posts.append(
                post.options(
                    num_cpus=bundle.get("CPU", 0),
                    num_gpus=bundle.get("GPU", 0),
                    memory=bundle.get("memory"),
                    scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, number),
                ).remote()
            )
        self._held = [one.hold.remote(invitation, self.python) for one in self._posts]

    def standing(self) -> str:
        ended, _ = self._ray.wait(self._held, timeout=0)
        if ended:
            raise UserError(
                "an agent on the Ray cluster has ended", why=self._why(ended[0]), remedy="see Ray's logs of that actor"
            )
        state = self._ray.util.placement_group_table(self._group)["state"]
        return f"Ray: the placement group is {state}"

    def end(self) -> None:
        if self._ray is not None and self._ray.is_initialized():
            for post in self._posts:
                self._ray.kill(post)
            if self._group is not None:
                self._ray.util.remove_placement_group(self._group)
            self._ray.shutdown()

    def _why(self, held: Any) -> str:
        try:
            return f"it ended with code {self._ray.get(held)}"
        except Exception as error:  # what happened to the actor, as Ray tells it
            return str(error).strip().split("\n")[0][:300]


def _knock(address: str | None) -> None:
    """Ray itself tries for minutes to reach a cluster that is not there, and then ends the process."""
    parts = urlsplit(address if address and "//" in address else f"//{address or ''}")
    try:
        if parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), timeout=_KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"nobody listens at {address}",
            why=getattr(error, "strerror", None) or str(error),
            remedy="check --address: HOST:6379, ray://HOST:10001, or auto; `ray status` on the head says how it is",
        ) from error
