"""What if: the same plan with one thing changed, such as link=10Gbit or workers=16."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from phalanx.config.resolve import Layer, nest, resolve
from phalanx.errors import UserError, nearest
from phalanx.plan.cluster import Cluster
from phalanx.plan.memory import refuse_too_large
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.setup import Setup, asked_arrangement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.plan import Plan
    from phalanx.plan.text_table import TextTable

AS_IT_IS = "as it is"
SETTINGS = {
    "method": "exchange.method",
    "servers": "exchange.servers",
    "mode": "exchange.mode",
    "compress": "exchange.compress",
    "batch": "train.batch_size",
    "precision": "machine.precision",
}


@dataclass(frozen=True)
class WhatIf:
    """Predictions with one thing changed each; the first is without a change."""

    rows: list[tuple[str, Prediction]]

    @property
    def text_table(self) -> "TextTable":
        from phalanx.plan.report import what_if_table

        return what_if_table(self)

    def table(self) -> str:
        """A line for each change, as text."""
        return str(self.text_table)

    def figure(self) -> "Figure":
        """Images/s with each change, and where a step's time goes: a matplotlib figure."""
        from phalanx.plan.figures import draw_what_if

        return draw_what_if(self)

    def to_list(self) -> list[dict[str, Any]]:
        """As plain data, for JSON."""
        from phalanx.plan.data import prediction_data

        return [{"change": name, **prediction_data(each)} for name, each in self.rows]

    __repr__ = table


def what_ifs(plan: "Plan", changes: Sequence[str]) -> WhatIf:
    """The plan's largest number of workers, arranged as the recipe says, with each change."""
    setup, workers = plan.setup, plan.asked.arranged.workers
    return WhatIf([(AS_IT_IS, plan.asked), *((text, what_if(setup, workers, text)) for text in changes)])


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
            raise UserError(
                f"--what-if {text!r} is no number of workers",
                why="workers are counted from 1",
                remedy="--what-if workers=16",
            )
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
    arranged = asked_arrangement(setup, workers)
    refuse_too_large(setup, arranged)
    return predict(setup, arranged)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
