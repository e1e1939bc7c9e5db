"""The job as trainers describe it to servers: slices, optimizer, schedule, mode. A server needs nothing else."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from phalanx.config.schema import OptimConfig
from phalanx.exchange.pserver.slices import Layout, Slice
from phalanx.exchange.pserver.wire import Refused
from phalanx.optim.schedule import Schedule


@dataclass(frozen=True)
class Job:
    """Equal on all trainers, or they do not belong together."""

    world: int
    mode: str
    damping: bool
    timeout_s: float
    optim: OptimConfig
    schedule: Schedule
    layouts: dict[str, Layout] = field(repr=False)
    exempt: frozenset[str]  # parameters that do not decay
    slices: tuple[Slice, ...] = field(repr=False)

    def described(self) -> dict[str, Any]:
        return {
            "world": self.world,
            "mode": self.mode,
            "damping": self.damping,
            "timeout_s": self.timeout_s,
            "optim": self.optim.model_dump(mode="json"),
            "schedule": asdict(self.schedule),
            "layouts": {name: [list(layout.shape), list(layout.stride)] for name, layout in self.layouts.items()},
            "exempt": sorted(self.exempt),
            "slices": [each.described() for each in self.slices],
        }

    @classmethod
    def from_description(cls, told: dict[str, Any]) -> "Job":
        try:
            return cls(
                world=int(told["world"]),
                mode=str(told["mode"]),
                damping=bool(told["damping"]),
                timeout_s=float(told["timeout_s"]),
                optim=OptimConfig.model_validate(told["optim"]),
                schedule=Schedule(**{**told["schedule"], "milestones": tuple(told["schedule"]["milestones"])}),
                layouts={name: Layout(tuple(shape), tuple(stride)) for name, (shape, stride) in told["layouts"].items()},
                exempt=frozenset(told["exempt"]),
                slices=tuple(Slice.from_description(each) for each in told["slices"]),
            )
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise Refused("job") from error

    def slices_of(self, server: int) -> list[Slice]:
        return [each for each in self.slices if each.server == server]

    def difference(self, other: "Job") -> str:
        """Which settings differ, for an error message."""
        mine, theirs = self.described(), other.described()
        return ", ".join(key for key in mine if mine[key] != theirs[key])
