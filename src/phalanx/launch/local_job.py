"""local: a job on this machine alone. Its agent is inside the launcher, and trainer 0 has the terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from phalanx.config.resolve import Layer
from phalanx.config.role import RoleKind
from phalanx.config.schema import ExchangeConfig, RunConfig
from phalanx.config.text import read_yaml
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.channel import Channel, InProcessChannel, Loss
from phalanx.launch.hosts import Host
from phalanx.launch.job import Again, Job
from phalanx.launch.messages import Message
from phalanx.launch.policy import Policy
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.roles.request import Request, with_workers


def again_with(request: Request) -> Again:
    """How the job forms a new group after a loss: from its last checkpoint, with as many workers as are left."""

    def again(workers: int, config: str | None) -> dict[str, Any]:
        before = None if config is None else Layer("the run's config.yaml", read_yaml(config))
        return with_workers(request, before, workers).to_data()

    return again


def wanted_roles(config: RunConfig) -> dict[RoleKind, int]:
    """How many of each kind the configuration asks for."""
    exchange = config.exchange
    servers = exchange.servers if exchange.method == "pserver" else 0
    return {
        "trainer": exchange.workers,
        "server": servers,
        "data": config.data.servers,
        "evaluator": int(config.eval.evaluator),
    }


def policy_of(exchange: ExchangeConfig, max_restarts: int | None = None, min_workers: int | None = None) -> Policy:
    """async and ssp jobs can do without a trainer for a while. What the launcher is not told, the settings say."""
    return Policy(
        forgiving=exchange.method == "pserver" and exchange.mode != "sync",
        max_restarts=exchange.max_restarts if max_restarts is None else max_restarts,
        min_workers=exchange.min_workers if min_workers is None else min_workers,
    )


def local_job(run: Path, request: Request) -> Job:
    """The job of `phalanx train` with several processes."""
    config = request.config
    return Job(
        run=run,
        request=request.to_data(),
        again=again_with(request),
        wanted=wanted_roles(config),
        policy=policy_of(config.exchange),
        command=request.command,
        at_step=request.at_step,
        log_dir=config.train.log_dir,
    )


def supervise_here(job: Job, console: Console) -> int:
    """See a job on this machine to its end. Returns its exit code."""

    async def main() -> int:
        return await JobSupervisor(
            job, [AgentHandle(Host("localhost"), inner=True)], _open, Screen(console, quiet=True)
        ).run()

    with adopting_orphans():
        return run_loop(main())


async def _open(agent: AgentHandle, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> Channel:
    return InProcessChannel(hear)
