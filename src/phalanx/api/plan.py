"""`phalanx.plan`: the command `phalanx plan` as a function."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from phalanx.api.arguments import settings_layers, to_setting
from phalanx.api.flags import PathText
from phalanx.api.plan_setup import CLUSTER_OPTIONS, RECIPE_FLAGS, Asked, plan_asked
from phalanx.plan.plan import Plan


def plan(
    recipe: PathText | None = None,
    cluster: PathText | Mapping[str, Any] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    workers: Sequence[int] | int = (),
    goals: Sequence[str] | str = (),
    samples: int | None = None,
    measured: PathText | Sequence[PathText] = (),
    measure: bool = False,
    out: PathText | None = None,
    device: str | None = None,
    hosts: int | None = None,
    per_host: int | None = None,
    link: str | None = None,
    inside: str | None = None,
    cores: int | None = None,
    server_hosts: int | None = None,
    data_servers: int | None = None,
    price: float | None = None,
    model: str | None = None,
    data: PathText | None = None,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    epochs: float | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
    update_method: str | None = None,
    servers: int | None = None,
    mode: str | None = None,
    compress: str | None = None,
) -> Plan:
    """Predict a recipe's speed, memory, hours and cost on a cluster, as `phalanx plan` does. Nothing is launched.

    `Plan.what_if` and `Plan.check` are --what-if and --check.

    Args:
        recipe: a recipe's name or file, or a run's folder, whose own speed is then used. Default: what was measured.
        cluster: a YAML file or a dictionary with device, hosts, per_host, link and more (see the guide).
        settings: of the recipe, such as {"exchange.method": "pserver"}.
        workers: numbers of workers to predict. Default: one, a host's, and all.
        goals: such as ["time<6h", "cost<400"]. The plan is then of what to rent; its `offers` have all that could be.
        samples: training images, where the data's name does not say.
        measured: runs, and files of `phalanx bench --json` (--from): their figures replace those of the table.
        measure: time one worker on this machine, now.
        out: the folder of the run that is planned: the plan is kept there, for `phalanx board`.
        device: of a worker, such as "v100".
        hosts: all alike.
        per_host: devices of a host, one worker each.
        link: of a host, such as "25Gbit".
        inside: the link between devices of a host.
        cores: of a host; they decode images.
        server_hosts: hosts with parameter servers alone.
        data_servers: further hosts that make batches, with as many cores.
        price: of a host for an hour.
        model: as for `phalanx.train`, like the following.
        data: a name or a path.
        batch_size: images of a worker's step.
        global_batch_size: images of a step, over all workers.
        epochs: passes over the data.
        optimizer: sgd, adamw …
        precision: fp32, bf16, fp16 or auto.
        update_method: collective or pserver.
        servers: parameter servers.
        mode: of pserver: sync, async or ssp:N.
        compress: none, fp16, 2bit …

    >>> plan = phalanx.plan("imagenet-resnet50", device="v100", hosts=4, per_host=8, link="25Gbit")
    >>> [row.arranged.workers for row in plan.rows]
    [1, 8, 32]
    >>> plan.best.arranged.method
    'collective'
    >>> plan.best.images_per_s.low < plan.best.images_per_s.expected < plan.best.images_per_s.high
    True
    >>> rent = phalanx.plan("imagenet-resnet50", {"device": "v100", "hosts": 8, "per_host": 8, "link": "25Gbit",
    ...                     "price": 24.5}, goals=["time<6h", "cost<400"])
    >>> rent.best.hosts
    3
    """
    given = locals()
    options = {name: given[name] for name in CLUSTER_OPTIONS if given[name] is not None}
    paths = [measured] if isinstance(measured, str | PathLike) else list(measured)
    asked = Asked(
        None if recipe is None else fspath(recipe),
        settings_layers(settings),
        {name: to_setting(given[name], name) for name in RECIPE_FLAGS},
        cluster={**(cluster if isinstance(cluster, Mapping) else {}), **options},
        cluster_file=None if cluster is None or isinstance(cluster, Mapping) else Path(cluster),
        workers=(workers,) if isinstance(workers, int) else tuple(workers),
        samples=samples,
        measured=[Path(path) for path in paths],
        measure=measure,
        out=None if out is None else Path(out),
    )
    return plan_asked(asked, [goals] if isinstance(goals, str) else goals)
