"""What to rent: the best of each number of hosts, those worth their money, and the cheapest that meets all goals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.errors import UserError
from phalanx.plan.memory import refuse_too_large
from phalanx.plan.plan import asked_arrangement
from phalanx.plan.predict import Prediction, predict
from phalanx.plan.search import Search
from phalanx.plan.setup import Setup
from phalanx.plan.units import parse_time, show_time

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
    chosen: Prediction | None  # the cheapest (without prices: the smallest) that meets all goals
    goals: tuple[Goal, ...]


def host_counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 … up to the cluster's hosts."""
    counts = {count for power in range(12) for count in (2**power, 3 * 2**power) if count <= most}
    return sorted(counts | {1, most})


def offers(setup: Setup, goals: Sequence[Goal]) -> Offers:
    """The best arrangement of each number of hosts."""
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
    chosen = min(fitting, key=lambda each: (_price(each), each.job.all_hosts)) if fitting else None
    return Offers(found, frontier, chosen, tuple(goals))


def _price(predicted: Prediction) -> float:
    return predicted.cost.expected if predicted.cost else float(predicted.job.all_hosts)


def _beats(one: Prediction, other: Prediction) -> bool:
    assert one.hours is not None
    assert other.hours is not None
    faster, cheaper = one.hours.expected < other.hours.expected, _price(one) < _price(other)
    return (faster and _price(one) <= _price(other)) or (cheaper and one.hours.expected <= other.hours.expected)


def _said(predicted: Prediction) -> str:
    assert predicted.hours is not None
    cost = f" and cost {predicted.cost.expected:,.0f}" if predicted.cost else ""
    count = predicted.job.all_hosts
    return f"{count} host{'s take' if count > 1 else ' takes'} {show_time(3600 * predicted.hours.expected)}{cost}"


def refuse_unmet(found: Offers) -> None:
    """Say what comes nearest where no number of hosts meets all goals."""
    if found.chosen is not None:
        return
    quickest = min(found.all, key=lambda each: each.step_s.expected * (each.total_steps or 1))
    cheapest = min(found.all, key=_price)
    near = [_said(quickest)] + ([_said(cheapest)] if cheapest is not quickest else [])
    raise UserError(
        f"no number of hosts meets {' and '.join(map(str, found.goals))}",
        why="; ".join(near),
        remedy="more hosts, another device or link, or other goals",
    )
