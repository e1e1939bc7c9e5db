"""A role: what one process of a job is, by kind and rank, and the addresses of the others.

A worker is a process that trains. As a kind of role, and in names such as trainer-0, it is called a trainer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from phalanx.errors import EXIT_REFORM, EXIT_USER

Environment = Mapping[str, str]

# A scheduler exists only in DMLC jobs: the others connect to it at the rendezvous.
RoleKind = Literal["trainer", "server", "data", "teacher", "evaluator", "scheduler"]

UNRANKED = -1  # until the rendezvous gives the process a rank


@dataclass(frozen=True)
class RoleVariables:
    """The environment variables that a role comes from, as NAME=VALUE or "", for messages."""

    kind: str = ""  # declares the kind; "" for launchers that set only ranks
    workers: str = ""  # the number of trainers
    num_workers: int | None = None
    servers: str = ""  # the parameter servers, or their number


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts that may connect to a server of a job without a key. Empty: all.

    With `first_come`, the hosts of trainers are not known in advance, only their number.
    """

    hosts: tuple[str, ...] = ()
    first_come: bool = False


@dataclass(frozen=True)
class Role:
    """One process of a job. A single process is rank 0 of 1."""

    kind: RoleKind = "trainer"
    rank: int = 0
    world: int = 1  # processes of this kind
    local_rank: int = 0
    local_world: int = 1
    # the trainers' rendezvous: HOST:PORT, or file://PATH where one machine has them all; "" if not known yet
    master: str = "127.0.0.1:0"
    # addresses of parameter servers, such as ipc:///run/x or tcp://10.0.0.1:7000; "" for one not known yet
    servers: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # addresses of the job's data servers
    teachers: tuple[str, ...] = ()  # addresses of the processes that compute its teachers' logits
    key: str = ""  # the job's secret; every message is authenticated with it
    local_trainers: int = 0  # trainers on the same host, this one included
    run: Path | None = None  # the run folder, if the launcher made it
    log: Path | None = None  # the log that this process writes itself; default: the launcher writes it
    elastic: bool = False  # survivors of a lost worker save and exit, for a new group
    launcher: str = "none"
    allowed_hosts: AllowedHosts = AllowedHosts()
    variables: RoleVariables = field(default=RoleVariables(), compare=False)

    @property
    def one_machine(self) -> bool:
        """Whether all processes of this kind are on one machine, as far as the launcher says."""
        return self.local_world == self.world

    @property
    def unfinished_code(self) -> int:
        """The exit code where others ended the job early. Kubernetes takes 0 for the end of all work."""
        if self.launcher != "kubernetes":
            return 0
        return EXIT_REFORM if self.elastic else EXIT_USER

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}" if self.rank != UNRANKED else f"a {self.kind}"


def environment_of(role: Role) -> dict[str, str]:
    """The variables from which `role_from_env` makes this role in another process."""
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
        "PHALANX_TEACHERS": ",".join(role.teachers),
        "PHALANX_KEY": role.key,
        "PHALANX_LOCAL_TRAINERS": str(role.local_trainers),
        **({"PHALANX_RUN": str(role.run)} if role.run else {}),
    }


def role_to_data(role: Role) -> dict[str, Any]:
    """A role of our own launchers as JSON, for `role_from_data` in its process."""
    data = asdict(role)
    for name in ("variables", "allowed_hosts", "launcher"):
        del data[name]
    return data | {name: str(path) for name in ("run", "log") if (path := data[name]) is not None}


def role_from_data(data: Mapping[str, Any]) -> Role:
    paths = {name: Path(data[name]) for name in ("run", "log") if data[name] is not None}
    addresses = {name: tuple(data[name]) for name in ("servers", "data", "teachers")}
    return Role(**{**data, **addresses, **paths}, launcher="phalanx")
