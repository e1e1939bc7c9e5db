"""A role is one process: trainer or server. What it needs to know comes from one table of variables per launcher."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phalanx.errors import UserError

Kind = Literal["trainer", "server"]


@dataclass(frozen=True)
class Role:
    """Who this process is in its job. One process on its own is rank 0 of 1."""

    kind: Kind = "trainer"
    rank: int = 0
    world: int = 1  # processes of this kind
    local_rank: int = 0
    local_world: int = 1
    master: str = "127.0.0.1:0"  # where trainers meet
    servers: tuple[str, ...] = ()  # addresses of parameter servers, such as ipc:///run/x or tcp://10.0.0.1:7000
    key: str = ""  # the job's secret; every message carries proof of it
    run: Path | None = None  # the run's folder, where the launcher made it
    launcher: str = "none"

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"


@dataclass(frozen=True)
class Dialect:
    """How one launcher spells a role in the environment."""

    launcher: str
    rank: str
    world: str
    local_rank: str
    local_world: str
    host: str = "MASTER_ADDR"
    port: str = "MASTER_PORT"


OURS = Dialect("phalanx", "PHALANX_RANK", "PHALANX_WORLD", "PHALANX_LOCAL_RANK", "PHALANX_LOCAL_WORLD")
TORCHRUN = Dialect("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def role_from(environment: Mapping[str, str] = os.environ) -> Role | None:
    """The role that a launcher gave this process, or None where nobody launched it."""
    for dialect in (OURS, TORCHRUN):
        if dialect.rank in environment:
            return _read(dialect, environment)
    return None


def _read(dialect: Dialect, environment: Mapping[str, str]) -> Role:
    def number(variable: str, default: int | None = None) -> int:
        text = environment.get(variable, "" if default is None else str(default))
        if not text.isdecimal():
            raise UserError(
                f"{variable}={text!r} is not a rank or a count",
                why=f"{dialect.rank} is set, so this process belongs to a job of {dialect.launcher}",
                remedy=f"start it with {dialect.launcher}, or unset {dialect.rank}",
            )
        return int(text)

    rank, world = number(dialect.rank), number(dialect.world)
    if rank >= world:
        raise UserError(
            f"{dialect.rank}={rank} does not fit {dialect.world}={world}",
            why="ranks are counted from 0",
            remedy=f"start the job with {dialect.launcher}, or unset {dialect.rank}",
        )
    kind: Kind = "server" if environment.get("PHALANX_ROLE") == "server" else "trainer"
    run = environment.get("PHALANX_RUN")
    return Role(
        kind=kind,
        rank=rank,
        world=world,
        local_rank=number(dialect.local_rank, 0),
        local_world=number(dialect.local_world, 1),
        master=f"{environment.get(dialect.host, '127.0.0.1')}:{environment.get(dialect.port, '0')}",
        servers=tuple(filter(None, environment.get("PHALANX_SERVERS", "").split(","))),
        key=environment.get("PHALANX_KEY", ""),
        run=Path(run) if run else None,
        launcher=dialect.launcher,
    )


def environment_of(role: Role) -> dict[str, str]:
    """The variables that make `role_from` give this role in another process."""
    host, _, port = role.master.rpartition(":")
    return {
        "PHALANX_ROLE": role.kind,
        OURS.rank: str(role.rank),
        OURS.world: str(role.world),
        OURS.local_rank: str(role.local_rank),
        OURS.local_world: str(role.local_world),
        OURS.host: host,
        OURS.port: port,
        "PHALANX_SERVERS": ",".join(role.servers),
        "PHALANX_KEY": role.key,
        **({"PHALANX_RUN": str(role.run)} if role.run else {}),
    }
