"""The job as workers describe it to servers: slices, optimizer, schedule, mode. A server needs nothing else."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig, OptimConfig
from phalanx.errors import UserError
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.pserver.slices import Layout, Slice, cut, needs_whole
from phalanx.exchange.pserver.to_half import HALF_TYPES
from phalanx.net.control import MAX_MESSAGE_BYTES, Refused
from phalanx.optim.schedule import Schedule

MOST_WORKERS = 1 << 16
_MOST_S = 10**9
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class ServerJob:
    """What all workers and servers of a job agree on."""

    world: int
    mode: str
    damping: bool
    timeout_s: float
    compress: str  # of gradients on their way to the servers
    compress_pull: str  # of parameters on their way back
    optim: OptimConfig
    schedule: Schedule
    layouts: dict[str, Layout] = field(repr=False)
    exempt: frozenset[str]  # parameters that do not decay
    slices: tuple[Slice, ...] = field(repr=False)
    elastic: bool = False  # whether the survivors of a lost worker save the last completed step

    def described(self) -> dict[str, Any]:
        return {
            "world": self.world,
            "mode": self.mode,
            "damping": self.damping,
            "timeout_s": self.timeout_s,
            "compress": self.compress,
            "compress_pull": self.compress_pull,
            "optim": self.optim.model_dump(mode="json"),
            "schedule": asdict(self.schedule),
            "layouts": {name: [list(layout.shape), list(layout.stride)] for name, layout in self.layouts.items()},
            "exempt": sorted(self.exempt),
            "slices": [each.described() for each in self.slices],
            "elastic": self.elastic,
        }

    @classmethod
    def from_description(cls, described: dict[str, Any]) -> "ServerJob":
        try:
            schedule = described["schedule"]
            return cls(
                world=_within(int(described["world"]), MOST_WORKERS),
                mode=_mode(described["mode"]),
                damping=bool(described["damping"]),
                timeout_s=_within(float(described["timeout_s"]), _MOST_S),
                compress=str(described["compress"]),
                compress_pull=_known(described["compress_pull"]),
                optim=OptimConfig.model_validate(described["optim"]),
                schedule=Schedule(**{**schedule, "milestones": tuple(schedule["milestones"])}),
                layouts={
                    name: Layout(tuple(shape), tuple(stride)) for name, (shape, stride) in described["layouts"].items()
                },
                exempt=frozenset(described["exempt"]),
                slices=tuple(Slice.from_description(each) for each in described["slices"]),
                elastic=bool(described["elastic"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ValidationError) as error:
            raise Refused("job") from error

    @property
    def pulls_half(self) -> bool:
        return self.compress_pull != "none"

    def codec(self) -> Codec | None:
        """What compresses a slice's gradient; None where it is sent as it is."""
        spec = parse_compression(self.compress)
        return None if spec.kind == "none" else make_codec(spec)

    def slices_of(self, server: int) -> list[Slice]:
        return [each for each in self.slices if each.server == server]

    def difference(self, other: "ServerJob") -> str:
        """Which settings differ, for an error message."""
        mine, theirs = self.described(), other.described()
        return ", ".join(key for key in mine if mine[key] != theirs[key])


def _within(number: N, most: int) -> N:
    if not 0 < number <= most:
        raise ValueError(number)
    return number


def _mode(mode: str) -> str:
    if re.fullmatch(r"sync|async|ssp:[0-9]{1,9}", mode) is None:
        raise ValueError(mode)
    return mode


def _known(compress_pull: str) -> str:
    if compress_pull not in HALF_TYPES:
        raise ValueError(compress_pull)
    return compress_pull


def describe(
    params: Mapping[str, Tensor],
    no_decay: Iterable[str],
    optim: OptimConfig,
    schedule: Schedule,
    exchange: ExchangeConfig,
    role: Role,
    *,
    elastic: bool = False,
) -> ServerJob:
    """The job of a worker with these parameters. Refuses what servers cannot do."""
    if not role.servers:
        raise UserError(
            f"{role.name} knows no parameter server",
            why="PHALANX_SERVERS is empty",
            remedy="start the job with phalanx train --update-method pserver --servers 1",
        )
    for name, param in params.items():
        if param.dtype != torch.float32:
            raise UserError(
                f"the parameter {name} is of type {param.dtype}",
                why="parameter servers hold float32",
                remedy="machine.precision=bf16 keeps float32 parameters and computes in bf16",
            )
    whole = needs_whole(optim)
    slices = cut({name: param.numel() for name, param in params.items()}, len(role.servers), whole=whole)
    largest = max(slices, key=lambda each: each.bytes)
    if largest.bytes > MAX_MESSAGE_BYTES:
        raise UserError(
            f"the parameter {largest.pieces[0].name} has {largest.bytes / 1e9:.1f} GB",
            why=f"{optim.name} needs whole tensors, and a message has at most {MAX_MESSAGE_BYTES / 1e9:.1f} GB",
            remedy="use an elementwise optimizer such as sgd or adamw, or --update-method collective",
        )
    return ServerJob(
        world=role.world,
        mode=exchange.mode,
        damping=exchange.damping,
        timeout_s=exchange.timeout_s,
        compress=exchange.compress,
        compress_pull=exchange.compress_pull,
        optim=optim,
        schedule=schedule,
        layouts={name: Layout.of(param) for name, param in params.items()},
        exempt=frozenset() if optim.decay_norm_and_bias else frozenset(no_decay) & params.keys(),
        slices=tuple(slices),
        elastic=elastic,
    )
