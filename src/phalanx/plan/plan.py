"""A plan: predictions by number of workers, the recommended arrangement, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.plan.advice import Constraint, constraint, recipe_advice
from phalanx.plan.goals import Goal, Offers, offers
from phalanx.plan.memory import refuse_too_large
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.search import Search
from phalanx.plan.setup import Setup, asked_arrangement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.check import Check
    from phalanx.plan.what_if import WhatIf


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
    >>> [name for name, _ in plan.what_if("link=1Gbit", "workers=16").rows]
    ['as it is', 'link=1Gbit', 'workers=16']
    """

    setup: Setup
    rows: list[Prediction]
    asked: Prediction  # the largest number of workers, arranged as the recipe says
    best: Prediction  # the fastest that gives the same result
    constraint: Constraint
    notes: list[str]
    offers: Offers | None = None  # with goals: what could be rented; `rows` and `best` are of the chosen one

    def table(self) -> str:
        """The rows as text, a line for each number of workers."""
        from phalanx.plan.report import rows_table

        return str(rows_table(self.rows))

    def figure(self) -> "Figure":
        """Images/s and the parts of a step against workers: a matplotlib figure."""
        from phalanx.plan.figure import draw_plan

        return draw_plan(self)

    def what_if(self, *changes: str) -> "WhatIf":
        """The largest number of workers with one thing changed, for each of `changes`: "link=10Gbit", "workers=16".

        The result has `rows` (name, prediction), `.table()` and `.figure()`.
        """
        from phalanx.plan.what_if import what_ifs

        return what_ifs(self, changes)

    def check(self, *measured: "str | PathLike[str]") -> "Check":
        """Predicted beside measured, for runs and files of `phalanx bench scaling --json`.

        The result has `rows`, `median`, `largest`, `.table()` and `.figure()`.
        """
        from phalanx.plan.check import check_files

        return check_files(self.setup, [Path(each) for each in measured])

    @property
    def command(self) -> str:
        """The recommended command, ready to run."""
        from phalanx.plan.commands import recommended

        return recommended(self.setup, self.best)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        from phalanx.plan.data import plan_data

        return plan_data(self)

    def __repr__(self) -> str:
        from phalanx.plan.report import plan_text

        return plan_text(self)


def make_plan(setup: Setup, workers: Sequence[int], goals: Sequence[Goal] = ()) -> Plan:
    """Predict each number of workers, and find the best arrangement of the last; with goals, of what to rent."""
    found = offers(setup, goals) if goals else None
    if found is not None:
        workers = [found.chosen.arranged.workers]
    counts = sorted(set(workers))
    rows = []
    for count in counts:
        arranged = asked_arrangement(setup, count)
        refuse_too_large(setup, arranged)
        rows.append(predict(setup, arranged))
    asked = rows[-1]
    chosen = Search(setup).best(asked.arranged)
    best = asked if chosen == asked.arranged else predict(setup, chosen)
    refuse_too_large(setup, chosen)
    return Plan(setup, rows, asked, best, constraint(setup, best, counts), recipe_advice(setup, best), found)
