"""A job: the request of all its processes, how many of each role, and the failure policy."""

import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.config.resolve import Layer
from phalanx.config.role import Role, RoleKind
from phalanx.config.schema import ExchangeConfig, RunConfig
from phalanx.config.text import read_yaml
from phalanx.launch.messages import Argument
from phalanx.launch.placement import DedicatedHosts, Placement
from phalanx.launch.policy import Policy
from phalanx.machine.openmp import environment_of_others
from phalanx.net.interfaces import PORT_RANGE
from phalanx.net.key import key_of
from phalanx.roles.request import Request, with_workers
from phalanx.runs.folder import LOGS

PYTHON: Argument = {"local": "python"}
INPUT: Argument = {"local": "input"}  # the file with the role and its request, which the agent writes
ROLE_COMMAND: tuple[Argument, ...] = (PYTHON, "-m", "phalanx.roles", INPUT)
# (number of workers, the run's config.yaml if a checkpoint was saved) -> the request of the new group.
NewGroupRequest = Callable[[int, str | None], Mapping[str, Any]]
MASTER = "master"  # the trainers' rendezvous: a port on trainer 0's host, or a file where all are on that host
# CUDA_VISIBLE_DEVICES is each host's own: Slurm and Ray set it there, and --gpus says the same for all hosts.
_CUDA = ("CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUBLAS_", "CUDNN_")
# Prefixes of the launching shell's variables that roles on other hosts get too.
_FORWARDED = ("OMP_", "MKL_", "KMP_", "GOMP_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PHALANX_", *_CUDA)


@dataclass(frozen=True)
class Job:
    """What the supervisor needs to run a job. Every process gets the same request, and its own role."""

    run: Path  # on the launching host
    request: Mapping[str, Any]  # as JSON: roles/request.py
    new_group_request: NewGroupRequest
    counts: Mapping[RoleKind, int]
    policy: Policy
    command: str = ""
    launcher: str = "local"
    out: str = ""  # the run folder on other hosts: absolute, or relative to their working folder
    resumes: bool = False
    at_step: int | None = None  # the checkpoint to resume from; default: the newest
    argv: Sequence[Argument] = ROLE_COMMAND
    log_dir: str | None = None  # for roles' logs, relative to the launching shell's folder; default: in the run folder
    cwd: str | None = None
    setup: str = ""
    iface: str | None = None
    ports: tuple[int, int] | None = None
    dedicated: DedicatedHosts = field(default_factory=DedicatedHosts)
    stop_with: signal.Signals | None = None  # the signal that stops roles; default: the one that the launcher got
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    key: str = field(default_factory=lambda: key_of(os.environ) or secrets.token_hex(32))

    @property
    def logs(self) -> Path:
        """The folder of the roles' logs, on the launching host."""
        return Path(self.log_dir) if self.log_dir else self.run / LOGS


def new_group_request(request: Request) -> NewGroupRequest:
    """Requests of groups that restart after a failure: from the last checkpoint, with the remaining workers."""

    def make(workers: int, config: str | None) -> dict[str, Any]:
        before = None if config is None else Layer("the run's config.yaml", read_yaml(config))
        return with_workers(request, before, workers).to_data()

    return make


def role_counts(config: RunConfig) -> dict[RoleKind, int]:
    """How many roles of each kind the configuration needs."""
    exchange = config.exchange
    servers = exchange.servers if exchange.method == "pserver" else 0
    return {
        "trainer": exchange.workers,
        "server": servers,
        "data": config.data.servers,
        "teacher": config.distill.servers,
        "evaluator": int(config.eval.evaluator),
    }


def policy_for(exchange: ExchangeConfig, max_restarts: int | None = None, min_workers: int | None = None) -> Policy:
    """The failure policy. The launcher's options override the settings."""
    return Policy(
        independent=exchange.method == "pserver" and exchange.mode != "sync",
        max_restarts=exchange.max_restarts if max_restarts is None else max_restarts,
        min_workers=exchange.min_workers if min_workers is None else min_workers,
    )


def listeners(placements: Sequence[Placement]) -> dict[int, list[str]]:
    """The names that need an address on each host: servers, and the trainers' rendezvous."""
    names: dict[int, list[str]] = {}
    for placement in placements:
        if placement.kind in ("server", "data", "teacher"):
            names.setdefault(placement.host, []).append(placement.name)
        if placement.kind == "trainer" and placement.rank == 0:
            names.setdefault(placement.host, []).append(MASTER)
    return names


def rendezvous_files(placements: Sequence[Placement]) -> list[str]:
    """Those of the names that are a file instead of an address: no other host has to reach them."""
    hosts = {placement.host for placement in placements if placement.kind == "trainer"}
    return [MASTER] if len(hosts) == 1 else []


def role_of(placement: Placement, addresses: Mapping[str, str], job: Job, run: Path, log: Path | None) -> Role:
    """The role of a placement, when all addresses are known."""

    def addresses_of(kind: RoleKind) -> tuple[str, ...]:
        names = [name for name in addresses if name.startswith(f"{kind}-")]
        return tuple(addresses[name] for name in sorted(names, key=lambda name: int(name.removeprefix(f"{kind}-"))))

    return Role(
        kind=placement.kind,
        rank=placement.rank,
        world=placement.world,
        local_rank=placement.local_rank,
        local_world=placement.local_world,
        master=addresses[MASTER],
        servers=addresses_of("server"),
        data=addresses_of("data"),
        teachers=addresses_of("teacher"),
        key=job.key,
        local_trainers=placement.local_trainers,
        run=run,
        log=log,
        elastic=job.policy.elastic,
    )


def variables_of(role: Role, job: Job, interface: str | None) -> dict[str, str]:
    """A role's variables: its interface and ports; and, for people who look, its job, run and name."""
    variables = {"PHALANX_JOB": job.id, "PHALANX_RUN": str(role.run), "PHALANX_NAME": role.name}
    if job.ports is not None:
        variables[PORT_RANGE] = f"{job.ports[0]}-{job.ports[1]}"
    if interface is not None:
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        variables |= {name: interface for name in names if name not in os.environ}
    return variables


def forwarded_variables() -> dict[str, str]:
    """The launching shell's variables that other hosts get. Each host chooses how its threads wait."""
    return {name: value for name, value in environment_of_others().items() if name.startswith(_FORWARDED)}
