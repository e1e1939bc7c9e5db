"""What to rent: the best of each number of hosts, those worth their money, and the cheapest that meets all goals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phalanx.errors import UserError
from phalanx.plan.memory import refuse_too_large
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.search import Search
from phalanx.plan.setup import Setup, asked_arrangement
from phalanx.plan.units import parse_time, show_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.text_table import TextTable

_GOAL = re.compile(r"\s*(time|cost)\s*<=?\s*(.+)")


@dataclass(frozen=True)
class Goal:
    """An upper bound: of seconds, or of money."""

    kind: str  # time or cost
    bound: float

    def met(self, predicted: Prediction) -> bool:
        found = predicted.hours if self.kind == "time" else predicted.cost
        return found is not None and found.expected * (3600 if self.kind == "time" else 1) <= self.bound

    def __str__(self) -> str:
        return f"time<{show_time(self.bound)}" if self.kind == "time" else f"cost<{self.bound:g}"


def parse_goal(text: str) -> Goal:
    """time<6h or cost<400."""
    found = _GOAL.fullmatch(text)
    if found is None:
        raise UserError(
            f"--goal {text!r} is no goal", why="it is an upper bound of time or cost", remedy="time<6h or cost<400"
        )
    if found[1] == "time":
        return Goal("time", parse_time(found[2], "--goal time"))
    try:
        bound = float(found[2])
    except ValueError:
        bound = -1.0
    if bound <= 0:
        raise UserError(f"--goal {text!r} is no goal", why="cost is a number, in the unit of price", remedy="cost<400")
    return Goal("cost", bound)


@dataclass(frozen=True)
class Offers:
    """By number of hosts, and which of them no other beats in both time and cost."""

    all: list[Prediction]
    frontier: list[Prediction]
    chosen: Prediction  # the cheapest (without prices: the smallest) that meets all goals
    goals: tuple[Goal, ...]

    @property
    def text_table(self) -> "TextTable":
        from phalanx.plan.report import offers_table

        return offers_table(self)

    def table(self) -> str:
        """A line for each number of hosts, as text."""
        return str(self.text_table)

    def figure(self) -> "Figure":
        """Hours against cost (without prices: against hosts), with the frontier and the goals: a matplotlib figure."""
        from phalanx.plan.figures import draw_offers

        return draw_offers(self)

    __repr__ = table


def host_counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 … up to the cluster's hosts."""
    counts = {count for power in range(12) for count in (2**power, 3 * 2**power) if count <= most}
    return sorted(counts | {1, most})


def offers(setup: Setup, goals: Sequence[Goal]) -> Offers:
    """The best arrangement of each number of hosts; refused where none meets all goals."""
    if any(goal.kind == "cost" for goal in goals) and setup.cluster.price is None:
        raise UserError(
            "a goal of cost needs a price",
            why="prices are yours: nobody else knows what you pay",
            remedy="--price 3.06, or price: in the cluster file (of a host for an hour)",
        )
    if setup.data.samples is None and setup.config.train.length.unit == "ep":
        raise UserError(
            "goals need the length of the run",
            why=f"nobody knows how many images {setup.config.data.source} has",
            remedy="--samples N",
        )
    found = []
    for hosts in host_counts(setup.cluster.hosts):
        start = asked_arrangement(setup, hosts * setup.cluster.per_host)
        refuse_too_large(setup, start)
        found.append(predict(setup, Search(setup).best(start)))
    frontier = [each for each in found if not any(_beats(other, each) for other in found)]
    fitting = [each for each in found if all(goal.met(each) for goal in goals)]
    if not fitting:
        raise _unmet(found, goals)
    return Offers(found, frontier, min(fitting, key=lambda each: (price_of(each), each.hosts)), tuple(goals))


def price_of(predicted: Prediction) -> float:
    """Its cost; without a price, its hosts."""
    return predicted.cost.expected if predicted.cost else float(predicted.hosts)


def _beats(one: Prediction, other: Prediction) -> bool:
    assert one.hours is not None
    assert other.hours is not None
    faster, cheaper = one.hours.expected < other.hours.expected, price_of(one) < price_of(other)
    return (faster and price_of(one) <= price_of(other)) or (cheaper and one.hours.expected <= other.hours.expected)


def _said(predicted: Prediction) -> str:
    assert predicted.hours is not None
    hosts = f"{predicted.hosts} host{'s' * (predicted.hosts > 1)}: {show_time(3600 * predicted.hours.expected)}"
    return f"{hosts}, cost {predicted.cost.expected:,.0f}" if predicted.cost else hosts


def _unmet(found: Sequence[Prediction], goals: Sequence[Goal]) -> UserError:
    """Says what comes nearest where no number of hosts meets all goals."""
    quickest = min(found, key=lambda each: each.step_s.expected * (each.total_steps or 1))
    cheapest = min(found, key=price_of)
    near = [_said(quickest)] + ([_said(cheapest)] if cheapest is not quickest else [])
    return UserError(
        f"no number of hosts up to {max(each.hosts for each in found)} meets {' and '.join(map(str, goals))}",
        why=f"the nearest are {'; '.join(near)}",
        remedy="more --hosts, another device or link, or other goals",
    )
