"""A job: what is to run, and how often. Which host runs which role is decided when the hosts have answered."""

import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.config.role import Role, RoleKind
from phalanx.launch.messages import Word
from phalanx.launch.placement import DedicatedHosts, Placement
from phalanx.launch.policy import Policy
from phalanx.machine.openmp import environment_of_others
from phalanx.net.interfaces import PORT_RANGE
from phalanx.net.key import key_of
from phalanx.runs.folder import LOGS

PYTHON: Word = {"own": "python"}
INPUT: Word = {"own": "input"}  # the file with the role and its request, which the agent writes
ROLE_COMMAND: tuple[Word, ...] = (PYTHON, "-m", "phalanx.roles", INPUT)
# For a number of workers, and the run's config.yaml where a checkpoint was saved: the request of the new group.
Again = Callable[[int, str | None], Mapping[str, Any]]
MASTER = "master"  # where trainers meet; a port on trainer 0's host
# Variables of the launching shell that roles on other hosts get too: how computing and talking is to be done.
_CARRIED = ("OMP_", "MKL_", "KMP_", "GOMP_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PHALANX_")


@dataclass(frozen=True)
class Job:
    """What every process of a job gets: the same request, and a role of its own."""

    run: Path  # on the launching host
    request: Mapping[str, Any]  # as JSON: roles/request.py
    again: Again
    wanted: Mapping[RoleKind, int]
    policy: Policy
    command: str = ""
    launcher: str = "local"
    out: str = ""  # the run's folder as other hosts are told: absolute, or from their working folder
    resumes: bool = False
    at_step: int | None = None  # whose checkpoint it goes on from; default: the newest
    argv: Sequence[Word] = ROLE_COMMAND
    log_dir: str | None = None  # for roles' logs, from the launching shell's folder; default: in the run's folder
    cwd: str | None = None
    setup: str = ""
    iface: str | None = None
    ports: tuple[int, int] | None = None
    apart: DedicatedHosts = field(default_factory=DedicatedHosts)
    stop_with: signal.Signals | None = None  # what trainers are stopped by; default: the signal that came
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    key: str = field(default_factory=lambda: key_of(os.environ) or secrets.token_hex(32))

    @property
    def logs(self) -> Path:
        """The folder of the roles' logs, on the launching host."""
        return Path(self.log_dir) if self.log_dir else self.run / LOGS


def listeners(placements: Sequence[Placement]) -> dict[int, list[str]]:
    """The names of what will listen on each host: servers, and the place where trainers meet."""
    found: dict[int, list[str]] = {}
    for placement in placements:
        if placement.kind in ("server", "data"):
            found.setdefault(placement.host, []).append(placement.name)
        if placement.kind == "trainer" and placement.rank == 0:
            found.setdefault(placement.host, []).append(MASTER)
    return found


def role_of(placement: Placement, places: Mapping[str, str], job: Job, run: Path, log: Path | None) -> Role:
    """The role of a seat, now that it is known who listens where."""

    def addresses(kind: RoleKind) -> tuple[str, ...]:
        names = [name for name in places if name.startswith(f"{kind}-")]
        return tuple(places[name] for name in sorted(names, key=lambda name: int(name.removeprefix(f"{kind}-"))))

    return Role(
        kind=placement.kind,
        rank=placement.rank,
        world=placement.world,
        local_rank=placement.local_rank,
        local_world=placement.local_world,
        master=places[MASTER],
        servers=addresses("server"),
        data=addresses("data"),
        key=job.key,
        beside=placement.beside,
        run=run,
        log=log,
        elastic=job.policy.elastic,
    )


def variables_of(role: Role, job: Job, interface: str | None) -> dict[str, str]:
    """The environment of a role: which interface and ports it uses; and, for people, which job, run and role it is."""
    variables = {"PHALANX_JOB": job.id, "PHALANX_RUN": str(role.run), "PHALANX_NAME": role.name}
    if job.ports is not None:
        variables[PORT_RANGE] = f"{job.ports[0]}-{job.ports[1]}"
    if interface is not None:
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        variables |= {name: interface for name in names if name not in os.environ}
    return variables


def carried_variables() -> dict[str, str]:
    """What hosts are told of the launching shell's environment. How threads wait is chosen on each."""
    return {name: value for name, value in environment_of_others().items() if name.startswith(_CARRIED)}
