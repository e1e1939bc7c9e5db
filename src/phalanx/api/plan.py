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
    **options: Any,
) -> Plan:
    """Predict a recipe's speed, memory, hours and cost on a cluster, as `phalanx plan` does. Nothing is launched.

    `recipe` is a recipe's name or file, or a run's folder. `cluster` is a YAML file or a dictionary; what else it has
    (device, hosts, per_host, link, cores, price …) may be given by name, too. `measured` are runs and files of `phalanx
    bench --json`, whose figures replace those of the table; `measure` times one worker on this machine now.

    >>> plan = phalanx.plan("imagenet-resnet50", device="v100", hosts=4, per_host=8, link="25Gbit")
    >>> [row.arranged.workers for row in plan.rows]
    [1, 8, 32]
    >>> plan.best.arranged.method
    'collective'
    >>> plan.best.images_per_s.low < plan.best.images_per_s.expected < plan.best.images_per_s.high
    True
    """
    file = None if cluster is None or isinstance(cluster, Mapping) else Path(cluster)
    given = {**(cluster if isinstance(cluster, Mapping) else {}), **options}
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
