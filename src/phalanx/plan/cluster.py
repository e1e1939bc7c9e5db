"""A cluster as users describe it: a YAML file, or the options --device, --hosts, --per-host, --link."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from phalanx.config.text import read_yaml
from phalanx.errors import UserError, nearest
from phalanx.plan.devices import Above0, Device, Entry, Link, Rate, Size, Table, known_table

Count = Annotated[int, Field(ge=1)]
DEFAULT_SPREAD = {"nccl": 0.02, "gloo": 0.05}  # assumed: deviation of compute times over their mean
EXAMPLE = "{device: v100, hosts: 4, per_host: 8, link: 25Gbit}"


class Measured(Entry):
    """The speed of one worker, measured: it replaces the table's figure."""

    images_per_s: Above0
    batch: Count


class Cluster(Entry):
    """Hosts that are alike, each with as many devices. Everything but the device may be left out."""

    device: str = Field(description="a name of the table of devices")
    hosts: Count = 1
    per_host: Count = Field(1, description="workers of a host: its devices")
    link: str | None = Field(None, description="of a host: a rate such as 25Gbit, or a name such as ib-hdr")
    inside: str | None = Field(None, description="between devices of a host; default: as the device usually has")
    cores: Count | None = Field(None, description="of a host; they make batches, and with a CPU device compute")
    memory: Size | None = Field(None, description="of a host; default: of a CPU device as in the table")
    input_images_per_s: Above0 | None = Field(
        None, description="batches that a host makes or gets; `phalanx bench io` measures it"
    )
    disk: Rate | None = Field(None, description="reading speed of a host's storage")
    image_bytes: Size = Field(110e3, description="of an image on disk; ImageNet's have 110kB on average")
    data_servers: Annotated[int, Field(ge=0)] = Field(0, description="other hosts that make batches, with `cores` each")
    server_hosts: Annotated[int, Field(ge=0)] = Field(0, description="hosts that have parameter servers alone")
    price: Above0 | None = Field(None, description="of a host for an hour")
    spread: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="of compute times between steps and workers: deviation over mean"
    )
    speed: Measured | None = Field(None, description="one worker's measured speed with this recipe's model")
    devices: dict[str, Device] = Field({}, description="further lines of the table of devices")
    codecs: dict[str, tuple[Above0, Above0]] = Field({}, description="GB/s of float32: encode, decode, by compression")
    links: dict[str, Link] = Field({}, description="and of the table of links")

    @property
    def table(self) -> Table:
        return known_table().with_lines(self.devices, self.links, self.codecs)

    def but(self, **changes: Any) -> "Cluster":
        return make_cluster({**self.model_dump(exclude_unset=True), **changes}, "the changed cluster")


def read_cluster(path: Path) -> dict[str, Any]:
    """What a cluster file says, not validated."""
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"the cluster file {path} cannot be read", why=why, remedy=f"write one: {EXAMPLE}") from error
    except yaml.YAMLError as error:
        raise UserError(
            f"{path} is not valid YAML", why=str(error).replace("\n", " "), remedy=f"such as {EXAMPLE}"
        ) from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} is not a cluster", why="its top level is not a mapping", remedy=f"such as {EXAMPLE}")
    return tree


def make_cluster(given: Mapping[str, Any], origin: str) -> Cluster:
    """Validate a description. `origin` names it for errors."""
    if given.get("device") is None:
        raise UserError(
            f"{origin} names no device",
            why="without one, nobody knows how fast a worker is",
            remedy="--device v100 (or another one of the table), --measure for this machine, or --from RUN",
        )
    try:
        cluster = Cluster.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise _explain(error, origin) from error
    cluster.table.device(cluster.device)
    count = cluster.hosts + cluster.server_hosts + cluster.data_servers
    if count > 1 and cluster.link is None:
        raise UserError(
            f"{origin} has {count} hosts and no link between them",
            why="the exchange depends on it most of all",
            remedy="--link 25Gbit, or link: in the cluster file",
        )
    if cluster.data_servers and cluster.cores is None:
        raise UserError(
            f"{origin} has data servers, and nobody knows how many cores they have",
            why="their cores make the batches",
            remedy="--cores 32, or cores: in the cluster file (of a host)",
        )
    if cluster.link is not None:
        cluster.table.link(cluster.link)
    if cluster.inside is not None:
        cluster.table.link(cluster.inside, "inside")
    return cluster


def _explain(error: ValidationError, origin: str) -> UserError:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UserError(
            f"{origin}: {name} is not known", why="unknown setting", remedy=nearest(name, list(Cluster.model_fields))
        )
    return UserError(
        f"{origin}: {name} cannot be {first.get('input')!r}", why=first["msg"], remedy=f"such as {EXAMPLE}"
    )
