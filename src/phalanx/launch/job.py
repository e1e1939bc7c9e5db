"""A job: what is to run, and how often. Which host runs which role is decided when the hosts have answered."""

import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.config.elastic import ELASTIC
from phalanx.config.role import Role, RoleKind, environment_of
from phalanx.launch.messages import Word
from phalanx.launch.placement import DedicatedHosts, Placement
from phalanx.launch.policy import Policy
from phalanx.machine.openmp import environment_of_others
from phalanx.net.interfaces import PORT_RANGE
from phalanx.net.key import key_of
from phalanx.runs.folder import LOGS

PYTHON: Word = {"own": "python"}
RUN: Word = {"own": "run"}
MASTER = "master"  # where trainers meet; a port on trainer 0's host
# Variables of the launching shell that roles on other hosts get too: how computing and talking is to be done.
_CARRIED = ("OMP_", "MKL_", "KMP_", "GOMP_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PHALANX_")


@dataclass(frozen=True)
class Job:
    """`first` is every role's command; `again`, for a number of workers, goes on from the last checkpoint."""

    run: Path  # on the launching host
    first: Sequence[Word]
    again: Callable[[int], Sequence[Word]]
    wanted: Mapping[RoleKind, int]
    policy: Policy
    command: str = ""
    launcher: str = "local"
    out: str = ""  # the run's folder as other hosts are told: absolute, or from their working folder
    resumes: bool = False
    at_step: int | None = None  # whose checkpoint it goes on from; default: the newest
    files: Mapping[str, str] = field(default_factory=dict)
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


def role_of(placement: Placement, places: Mapping[str, str], key: str, run: Path) -> Role:
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
        key=key,
        beside=placement.beside,
        run=run,
    )


def variables_of(role: Role, job: Job, interface: str | None) -> dict[str, str]:
    """The environment of a role: who it is, whose it is, and over which interface it talks."""
    told = {**environment_of(role), "PHALANX_JOB": job.id, "PHALANX_COMMAND": job.command}
    if job.policy.elastic:
        told[ELASTIC] = "1"
    if job.ports is not None:
        told[PORT_RANGE] = f"{job.ports[0]}-{job.ports[1]}"
    if interface is not None:
        told |= {name: interface for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name not in os.environ}
    return told


def carried_variables() -> dict[str, str]:
    """What hosts are told of the launching shell's environment. How threads wait is chosen on each."""
    return {name: value for name, value in environment_of_others().items() if name.startswith(_CARRIED)}
