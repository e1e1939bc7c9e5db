"""`phalanx.plan`: the command `phalanx plan` as a function."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from phalanx.api.arguments import settings_layers
from phalanx.api.flags import PathText
from phalanx.api.plan_setup import Asked, make_setup
from phalanx.plan.plan import Plan, make_plan


def plan(
    recipe: "str | PathLike[str] | None" = None,
    cluster: PathText | Mapping[str, Any] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    workers: Sequence[int] | int = (),
    samples: int | None = None,
    measured: PathText | Sequence[PathText] = (),
    measure: bool = False,
    device: str | None = None,
    hosts: int | None = None,
    per_host: int | None = None,
    link: str | None = None,
    inside: str | None = None,
    cores: int | None = None,
    server_hosts: int | None = None,
    price: float | None = None,
) -> Plan:
    """Predict a recipe's speed, memory, hours and cost on a cluster, as `phalanx plan` does. Nothing is launched.

    Args:
        recipe: a recipe's name or file, or a run's folder, whose own speed is then used.
        cluster: a YAML file or a dictionary with device, hosts, per_host, link and more (see the guide).
        settings: of the recipe, such as {"exchange.method": "pserver"}.
        workers: numbers of workers to predict. Default: one, a host's, and all.
        samples: training images, where the data's name does not say.
        measured: runs, and files of `phalanx bench --json`: their figures replace those of the table.
        measure: time one worker on this machine, now.
        device: of a worker, such as "v100".
        hosts: all alike.
        per_host: devices of a host, one worker each.
        link: of a host, such as "25Gbit".
        inside: the link between devices of a host.
        cores: of a host; they decode images.
        server_hosts: hosts with parameter servers alone.
        price: of a host for an hour.

    >>> plan = phalanx.plan("imagenet-resnet50", device="v100", hosts=4, per_host=8, link="25Gbit")
    >>> [row.arranged.workers for row in plan.rows]
    [1, 8, 32]
    >>> plan.best.arranged.method
    'collective'
    >>> plan.best.images_per_s.low < plan.best.images_per_s.expected < plan.best.images_per_s.high
    True
    """
    file = None if cluster is None or isinstance(cluster, Mapping) else Path(cluster)
    options = {
        **{"device": device, "hosts": hosts, "per_host": per_host, "link": link, "inside": inside},
        **{"cores": cores, "server_hosts": server_hosts, "price": price},
    }
    named = {name: value for name, value in options.items() if value is not None}
    given = {**(cluster if isinstance(cluster, Mapping) else {}), **named}
    paths = [measured] if isinstance(measured, str | PathLike) else list(measured)
    asked = Asked(
        None if recipe is None else fspath(recipe),
        settings_layers(settings),
        cluster=given,
        cluster_file=file,
        workers=(workers,) if isinstance(workers, int) else tuple(workers),
        samples=samples,
        measured=[Path(path) for path in paths],
        measure=measure,
    )
    return make_plan(*make_setup(asked))
