"""What if: the same plan with one thing changed, such as link=10Gbit or workers=16."""

from dataclasses import replace

from phalanx.config.resolve import Layer, nest, resolve
from phalanx.errors import UserError, nearest
from phalanx.plan.cluster import Cluster
from phalanx.plan.plan import asked_arrangement
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.setup import Setup

SETTINGS = {
    "method": "exchange.method",
    "servers": "exchange.servers",
    "mode": "exchange.mode",
    "compress": "exchange.compress",
    "batch": "train.batch_size",
    "precision": "machine.precision",
}


def what_if(setup: Setup, workers: int, text: str) -> Prediction:
    """Predict with a change. Workers that the hosts do not hold take more hosts."""
    name, equals, value = (part.strip() for part in text.partition("="))
    of_cluster = [field for field in Cluster.model_fields if field not in ("devices", "links", "speed")]
    if not equals or name not in (*SETTINGS, *of_cluster, "workers"):
        raise UserError(
            f"--what-if {text!r} is not known",
            why="it is NAME=VALUE",
            remedy=nearest(name, ["workers", *SETTINGS, *of_cluster]),
        )
    if name == "workers":
        if not value.isdecimal() or int(value) < 1:
            raise UserError(f"--what-if {text!r}", why="workers are counted from 1", remedy="--what-if workers=16")
        workers = int(value)
        hosts = max(setup.cluster.hosts, -(-workers // setup.cluster.per_host))
        setup = setup.but(setup.cluster.but(hosts=hosts))
    elif name in SETTINGS:
        values = setup.config.model_dump(mode="json")
        changed = resolve(
            [Layer("the recipe", values), Layer(f"--what-if {text}", nest(SETTINGS[name], _value(value)))]
        )
        setup = replace(setup, config=changed.config, times=None if name == "batch" else setup.times)
    else:
        before = setup.cluster
        setup = setup.but(before.but(**{name: _value(value)}))
        if name in ("hosts", "per_host"):
            workers = setup.cluster.hosts * setup.cluster.per_host
        if name == "device":
            setup = replace(setup.but(setup.cluster.but(speed=None)), times=None)
    return predict(setup, asked_arrangement(setup, workers))


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
