"""Figures of what is asked of a plan: offers for goals, changes, and checks against measurements."""

from typing import TYPE_CHECKING

from phalanx.plan.figure import COLOURS, bars_of_parts, plain_axes
from phalanx.plan.goals import price_of
from phalanx.plan.setup import Arrangement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.check import Check
    from phalanx.plan.goals import Offers
    from phalanx.plan.what_if import WhatIf


def draw_offers(offers: "Offers") -> "Figure":
    """Hours against cost (without prices: hosts), each number of hosts a point with its range."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained", dpi=130)
    axes = figure.add_subplot()
    hours = [each.hours for each in offers.all if each.hours is not None]
    costs = [price_of(each) for each in offers.all]
    spans = [[each.expected - each.low for each in hours], [each.high - each.expected for each in hours]]
    axes.errorbar([each.expected for each in hours], costs, xerr=spans, fmt="o", color="0.7", capsize=2, zorder=1)
    frontier = sorted((each.hours.expected, price_of(each)) for each in offers.frontier if each.hours)
    axes.plot(
        [time for time, _ in frontier], [cost for _, cost in frontier], "o-", color="C0", label="frontier", zorder=2
    )
    chosen = offers.chosen
    if chosen.hours is not None:
        named = f"rent this: {chosen.hosts} host{'s' * (chosen.hosts > 1)}, {chosen.arranged}"
        axes.plot([chosen.hours.expected], [price_of(chosen)], "*", ms=15, color="C1", label=named, zorder=3)
    for each, time, cost in zip(offers.all, hours, costs, strict=True):
        axes.annotate(str(each.hosts), (time.expected, cost), (4, 5), textcoords="offset points", fontsize=7)
    for goal in offers.goals:
        if goal.kind == "time":
            axes.axvline(goal.bound / 3600, color="C3", ls=":", label=str(goal))
        else:
            axes.axhline(goal.bound, color="C3", ls="--", label=str(goal))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("hours to the end")
    axes.set_ylabel("cost" if chosen.cost else "hosts")
    axes.set_title("what to rent: a point for each number of hosts, with the range of its time", fontsize=10)
    plain_axes(axes)
    axes.legend(fontsize=8)
    return figure


def draw_what_if(changed: "WhatIf") -> "Figure":
    """Images/s with each change, and where a step's time goes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 1.6 + 0.5 * len(changed.rows)), layout="constrained", dpi=130)
    speeds, times = figure.subplots(1, 2, sharey=True)
    names, found = [name for name, _ in changed.rows], [each for _, each in changed.rows]
    rates = [each.images_per_s for each in found]
    spans = [[rate.expected - rate.low for rate in rates], [rate.high - rate.expected for rate in rates]]
    places = range(len(names))
    speeds.barh(places, [rate.expected for rate in rates], 0.6, xerr=spans, color="C0", ecolor="0.4", capsize=3)
    speeds.set_yticks(list(places), names, parse_math=False)
    speeds.invert_yaxis()
    speeds.set_title("images/s, with their range", fontsize=10)
    bars_of_parts(times, found, across=True)
    times.set_title("ms of a step", fontsize=10)
    times.set_ylim(top=-1.4)  # room for the legend
    for axes in (speeds, times):
        plain_axes(axes, grid="x")
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def draw_check(check: "Check") -> "Figure":
    """Predicted against measured images/s, a point with its range for each job; on the line, they are equal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained", dpi=130)
    axes = figure.add_subplot()
    kinds: dict[str, list[tuple[float, float, float, float]]] = {}
    for each in check.rows:
        row, found = each.row, each.predicted
        kind = str(Arrangement(row.workers, row.method, row.servers, row.mode))
        point = (row.images_per_s, found.expected, found.expected - found.low, found.high - found.expected)
        kinds.setdefault(kind, []).append(point)
    for number, (kind, points) in enumerate(kinds.items()):
        measured, predicted, below, above = zip(*points, strict=True)
        axes.errorbar(measured, predicted, [below, above], fmt="o", color=f"C{number % 10}", capsize=2, label=kind)
    ends = [each.row.images_per_s for each in check.rows]
    line = [0.8 * min(ends), 1.25 * max(ends)]
    axes.plot(line, line, color="0.4", lw=1, label="equal")
    axes.fill_between(line, [0.9 * x for x in line], [1.1 * x for x in line], color=COLOURS["waiting"], alpha=0.3)
    if max(ends) > 8 * min(ends):
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("measured images/s")
    axes.set_ylabel("predicted images/s")
    axes.set_title(f"{check.summary}; grey: within 10 %", fontsize=10)
    plain_axes(axes)
    axes.legend(fontsize=8)
    return figure
