"""A role is one process of a job: its kind, rank and world, and where the others are. `launch/env` reads it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Environment = Mapping[str, str]

# A scheduler is what DMLC jobs have one of: only the others' meeting place.
RoleKind = Literal["trainer", "server", "data", "evaluator", "scheduler"]

UNRANKED = -1  # the rank of a process that gets one when all have met


@dataclass(frozen=True)
class RoleVariables:
    """The variables behind a role, each as NAME=VALUE: a message about it names them. "" where there is none."""

    kind: str = ""  # declares this process a trainer, a server …; launchers that only count do not
    workers: str = ""  # how many trainers there are
    num_workers: int | None = None
    servers: str = ""  # which parameter servers there are, or how many


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts of a job without a key of its own: a server takes connections from nobody else. Empty: from all.

    With `first_come`, hosts of trainers are not known beforehand, only their number.
    """

    hosts: tuple[str, ...] = ()
    first_come: bool = False


@dataclass(frozen=True)
class Role:
    """Who this process is in its job. One process on its own is rank 0 of 1."""

    kind: RoleKind = "trainer"
    rank: int = 0
    world: int = 1  # processes of this kind
    local_rank: int = 0
    local_world: int = 1
    master: str = "127.0.0.1:0"  # where trainers meet; "" where that is still to be found out
    # addresses of parameter servers, such as ipc:///run/x or tcp://10.0.0.1:7000; "" for one still to be found out
    servers: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # addresses of the job's data servers
    key: str = ""  # the job's secret; every message carries proof of it
    beside: int = 0  # trainers on the same host, itself among them if it is one
    run: Path | None = None  # the run's folder, where the launcher made it
    log: Path | None = None  # where this process keeps its log itself; default: the launcher keeps it
    elastic: bool = False  # whether survivors of a lost worker save and leave, to be started in a new group
    launcher: str = "none"
    allowed_hosts: AllowedHosts = AllowedHosts()
    told: RoleVariables = field(default=RoleVariables(), compare=False)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}" if self.rank != UNRANKED else f"a {self.kind}"


def environment_of(role: Role) -> dict[str, str]:
    """The variables that make `role_from` give this role in another process."""
    host, _, port = role.master.rpartition(":")
    return {
        "PHALANX_ROLE": role.kind,
        "PHALANX_RANK": str(role.rank),
        "PHALANX_WORLD": str(role.world),
        "PHALANX_LOCAL_RANK": str(role.local_rank),
        "PHALANX_LOCAL_WORLD": str(role.local_world),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "PHALANX_SERVERS": ",".join(role.servers),
        "PHALANX_DATA": ",".join(role.data),
        "PHALANX_KEY": role.key,
        "PHALANX_BESIDE": str(role.beside),
        **({"PHALANX_RUN": str(role.run)} if role.run else {}),
    }


def role_to_data(role: Role) -> dict[str, Any]:
    """A role of our own launchers as JSON; `role_from_data` reads it in the role's process."""
    data = asdict(role)
    for name in ("told", "allowed_hosts", "launcher"):
        del data[name]
    return data | {name: str(path) for name in ("run", "log") if (path := data[name]) is not None}


def role_from_data(data: Mapping[str, Any]) -> Role:
    paths = {name: Path(data[name]) for name in ("run", "log") if data[name] is not None}
    addresses = {name: tuple(data[name]) for name in ("servers", "data")}
    return Role(**{**data, **addresses, **paths}, launcher="phalanx")
