"""The table of devices and links, in devices.yaml; users add lines in their cluster file."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from phalanx.config.text import read_yaml
from phalanx.errors import UserError, nearest
from phalanx.plan.units import parse_rate, parse_size, parse_time

SLOW_ETHERNET = 1.25e9  # bytes a second: up to here, sockets fill a link
TABLE = Path(__file__).with_name("devices.yaml")
Precision = Literal["fp32", "bf16", "fp16"]
Rate = Annotated[float, BeforeValidator(lambda given: parse_rate(given, "rate") if isinstance(given, str) else given)]
Size = Annotated[float, BeforeValidator(lambda given: parse_size(given, "size") if isinstance(given, str) else given)]
Time = Annotated[float, BeforeValidator(lambda given: parse_time(given, "time") if isinstance(given, str) else given)]
Share = Annotated[float, Field(gt=0, le=1)]
Above0 = Annotated[float, Field(gt=0)]


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Speed(Entry):
    """A published speed of training ResNet-50 at 224 pixels."""

    precision: Precision
    batch: Annotated[int, Field(ge=1)]
    images_per_s: Above0


class Device(Entry):
    """One worker's hardware: a GPU, or some cores."""

    flops: dict[Precision, Above0]
    bandwidth: Rate
    memory: Size
    inside: str = Field("pcie3", description="the link between devices of one host")
    bf16: bool = False
    exchange: Literal["nccl", "gloo"] = "nccl"
    cores: int | None = None  # of a CPU: what the figures are for
    resnet50: tuple[Speed, ...] = ()
    achieved_as: str | None = None
    source: str = ""

    @property
    def is_cpu(self) -> bool:
        return self.exchange == "gloo"


class Link(Entry):
    """A link, in bytes a second of one direction; `achieved` of it is what exchanges reach."""

    rate: Rate = 0.0
    achieved: Share = 0.85
    low: Share = 0.6
    high: Share = 0.95
    latency: Time = 30e-6
    source: str = ""

    def speed(self, share: float = 0.0) -> float:
        """Bytes a second: what is expected at 0, the highest at 1, the lowest at -1."""
        other = self.high if share > 0 else self.low
        return self.rate * (self.achieved + abs(share) * (other - self.achieved))


class Server(Entry):
    """What a parameter server's process does in a second, and what each message costs it."""

    rate: Rate  # receives and sends
    sum: Rate  # adds gradients
    update: Rate  # updates parameters
    message: Time
    source: str = ""


class Gloo(Entry):
    """What a process on a CPU reaches with it, and what each step of its ring costs beyond the link's latency."""

    rate: Rate
    message: Time
    source: str = ""


class Input(Entry):
    images_per_s: Above0  # of one core
    source: str = ""


class Software(Entry):
    """What libraries and our own code reach."""

    codecs: dict[str, tuple[Above0, Above0]]  # GB/s of float32: encode, decode
    gloo: Gloo
    server: Server
    input: Input


class Table(Entry):
    devices: dict[str, Device]
    links: dict[str, Link]
    software: Software

    def with_lines(
        self,
        devices: Mapping[str, Device],
        links: Mapping[str, Link],
        codecs: Mapping[str, tuple[float, float]],
    ) -> "Table":
        """The same with the user's own lines."""
        if not (devices or links or codecs):
            return self
        software = self.software.model_copy(update={"codecs": {**self.software.codecs, **codecs}})
        changed = {"devices": {**self.devices, **devices}, "links": {**self.links, **links}, "software": software}
        return self.model_copy(update=changed)

    def device(self, name: str) -> Device:
        found = self.devices.get(name.lower())
        if found is None:
            raise UserError(
                f"the device {name!r} is not known",
                why=f"known are {', '.join(self.devices)}",
                remedy=f"{nearest(name, list(self.devices))}; or add a line to devices: of your --cluster file",
            )
        return found

    def link(self, text: str, what: str = "link") -> Link:
        """A link by name, or an Ethernet link by its rate."""
        named = self.links.get(text.lower())
        if named is not None and named.rate:
            return named
        if text.strip()[:1].isdigit():
            rate = parse_rate(text, what)
            kind = "ethernet" if rate <= SLOW_ETHERNET else "ethernet-fast"
            return self.links[kind].model_copy(update={"rate": rate})
        names = [name for name, link in self.links.items() if link.rate]
        raise UserError(
            f"{what} {text!r} is not known",
            why=f"it is neither a rate nor one of {', '.join(names)}",
            remedy=f"write its rate with a unit, such as 25Gbit; or {nearest(text, names)}",
        )


@functools.cache
def known_table() -> Table:
    tree: Any = read_yaml(TABLE.read_text(encoding="utf-8"))
    return Table.model_validate(tree)
