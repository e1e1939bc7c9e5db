"""A plan: predictions by number of workers, the recommended arrangement, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from phalanx.plan.advice import Constraint, constraint, recipe_advice
from phalanx.plan.memory import refuse_too_large
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.search import Search
from phalanx.plan.setup import Arrangement, Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plan:
    """What `phalanx plan` finds. `rows` has a prediction for each number of workers, `best` is the last one's.

    Printed, it is the table with the reasons; in a notebook too.

    >>> plan = phalanx.plan("cifar10-resnet20", device="p100", hosts=2, per_host=4, link="10Gbit", price=2.5)
    >>> plan.constraint.kind in ("compute", "waiting", "exchange", "links")
    True
    >>> plan.best.worker_memory["gradients"]  # bytes
    1078888.0
    >>> print(plan.command)
    phalanx launch -n 8 -H hosts.txt -- train cifar10-resnet20 --update-method collective
    >>> figure = plan.figure()
    """

    setup: Setup
    rows: list[Prediction]
    asked: Prediction  # the largest number of workers, arranged as the recipe says
    best: Prediction  # the fastest that gives the same result
    constraint: Constraint
    notes: list[str]

    def table(self) -> str:
        """The rows as text, a line for each number of workers."""
        from phalanx.plan.report import table_text

        return table_text(self)

    def figure(self) -> "Figure":
        """Images/s and the parts of a step against workers: a matplotlib figure."""
        from phalanx.plan.figure import draw_plan

        return draw_plan(self)

    @property
    def command(self) -> str:
        """The recommended command, ready to run."""
        from phalanx.plan.commands import launch_command

        return launch_command(self.setup, self.best)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        from phalanx.plan.report import plan_data

        return plan_data(self)

    def __repr__(self) -> str:
        from phalanx.plan.report import plan_text

        return plan_text(self)


def asked_arrangement(setup: Setup, workers: int) -> Arrangement:
    """As the recipe says; several workers of a recipe for one are collective, as `phalanx train --workers` does."""
    exchange = setup.config.exchange
    method = "collective" if exchange.method == "local" else exchange.method
    mode = exchange.mode if method == "pserver" else "sync"
    return Arrangement(workers, method, exchange.servers if method == "pserver" else 1, mode, exchange.compress)


def make_plan(setup: Setup, workers: Sequence[int]) -> Plan:
    """Predict each number of workers, and find the best arrangement of the last."""
    counts = sorted(set(workers))
    search = Search(setup)
    rows = []
    for count in counts:
        arranged = asked_arrangement(setup, count)
        refuse_too_large(setup, arranged)
        rows.append(predict(setup, arranged))
    asked = rows[-1]
    chosen = search.best(asked.arranged)
    best = asked if chosen == asked.arranged else predict(setup, chosen)
    refuse_too_large(setup, chosen)
    binds = constraint(setup, best)
    return Plan(setup, rows, asked, best, _since(setup, rows, best, binds), recipe_advice(setup, best))


def _since(setup: Setup, rows: list[Prediction], best: Prediction, binds: Constraint) -> Constraint:
    """Say from how many workers on it binds, where a smaller row shows it."""
    if binds.kind == "compute" or best.arranged != rows[-1].arranged:
        return binds
    first = len(rows) - 1
    while first > 0 and constraint(setup, rows[first - 1]).kind == binds.kind:
        first -= 1
    if first == len(rows) - 1 and len(rows) == 1:
        return binds
    head, colon, rest = binds.sentence.partition(":")
    return replace(binds, sentence=f"{head}, from {rows[first].arranged.workers} workers on{colon}{rest}")
