"""A plan as text and as tables of the terminal."""

import io
from collections.abc import Callable

from rich.console import Console

from phalanx.observe.tables import print_line, print_rows
from phalanx.plan.check import Check
from phalanx.plan.commands import run_rows
from phalanx.plan.goals import Offers
from phalanx.plan.memory import show_parts
from phalanx.plan.plan import Plan
from phalanx.plan.predict import Prediction, Range
from phalanx.plan.setup import Arrangement
from phalanx.plan.simulate import MEANING, PARTS
from phalanx.plan.text_table import TextTable
from phalanx.plan.units import show_ms, show_time
from phalanx.plan.what_if import WhatIf

RANGE = "range: of step, time and cost, where all that is uncertain turns out well, or badly; images/s vary inversely"


def speed_cells(predicted: Prediction) -> dict[str, str]:
    """One line of a table, by title."""
    hours, cost, speed_up = predicted.hours, predicted.cost, predicted.speed_up
    return {
        "workers": str(predicted.arranged.workers),
        "hosts": str(predicted.hosts),
        "step": show_ms(predicted.step_s.expected),
        "range": _percent(predicted.step_s),
        "images/s": _rate(predicted.images_per_s.expected),
        "speed-up": _ranged(speed_up, _short),
        "efficiency": f"{100 * predicted.efficiency.expected:.0f} %",
        "time": show_time(3600 * hours.expected) if hours else "?",
        "cost": f"{cost.expected:,.0f}" if cost else "",
    }


def part_cells(predicted: Prediction) -> dict[str, str]:
    """The parts of a step, in ms."""
    return {part: _part(predicted.parts[part]) for part in PARTS}


def rows_table(rows: list[Prediction]) -> TextTable:
    """Everything of each number of workers in one line."""
    return TextTable([{**speed_cells(each), **part_cells(each)} for each in rows])


def offers_table(offers: Offers) -> TextTable:
    """What could be rented."""
    lines = []
    for each in offers.all:
        mark = "rent this" if each is offers.chosen else "frontier" if each in offers.frontier else ""
        lines.append({**speed_cells(each), "arranged": str(each.arranged), " ": mark})
    return TextTable(lines, words=("arranged", " "))


def what_if_table(changed: WhatIf) -> TextTable:
    first = changed.rows[0][1].images_per_s.expected
    lines = [
        {"change": name, "speed": f"{each.images_per_s.expected / first:.2f}×", **speed_cells(each)}
        for name, each in changed.rows
    ]
    return TextTable(lines, words=("change",))


def check_table(check: Check) -> TextTable:
    lines = []
    for each in check.rows:
        row = each.row
        arranged = Arrangement(row.workers, row.method, row.servers, row.mode, row.compress)
        lines.append(
            {
                "workers": str(row.workers),
                "arranged": str(arranged),
                "batch": str(row.batch_size),
                "measured images/s": _rate(row.images_per_s),
                "predicted": _rate(each.predicted.expected),
                "range": f"{_rate(each.predicted.low)} to {_rate(each.predicted.high)}",
                "error": f"{100 * each.error:+.0f} %",
            }
        )
    return TextTable(lines, words=("arranged",))


def print_plan(console: Console, plan: Plan) -> None:
    """The tables, the best arrangement with its reasons, and the command."""
    if plan.offers is not None:
        print_line(console, f"What to rent for {' and '.join(map(str, plan.offers.goals))}:")
        plan.offers.text_table.print(console)
        print_line(console, "frontier: no other is both faster and cheaper\n")
    print_line(console, _title(plan))
    TextTable([speed_cells(each) for each in plan.rows]).print(console)
    print_line(console, RANGE)
    print_line(console, "\nWhere the time of a step goes, in ms:")
    parts = TextTable([{"workers": str(each.arranged.workers), **part_cells(each)} for each in plan.rows])
    parts.print(console)
    print_line(console, "; ".join(f"{part}: {MEANING[part]}" for part in PARTS if part in parts.titles) + "\n")
    print_rows(console, best_rows(plan), bold=("run", "what binds"))
    print_line(console, "")
    for note in plan.notes:
        print_line(console, f"note: {note}")
    for each in assumptions(plan):
        print_line(console, f"assumed: {each}")
    if plan.best.total_steps is None:
        print_line(
            console,
            f"hours are not known: nobody knows how many images {plan.setup.config.data.source} has; --samples N",
        )


def _title(plan: Plan) -> str:
    setup, config = plan.setup, plan.setup.config
    batch = plan.asked.job.batch
    accumulate = f" × {config.optim.accumulate} accumulated" if config.optim.accumulate > 1 else ""
    return (
        f"{config.name}: {config.model.name} at {setup.data.image_size}², {setup.precision}, {batch} images a worker"
        f"{accumulate}, on {setup.cluster.device}, {plan.asked.arranged}"
    )


def best_rows(plan: Plan) -> dict[str, str]:
    """What is recommended for the largest number of workers."""
    best, asked = plan.best, plan.asked
    share = _ranged(best.efficiency * 100, lambda value: f"{value:.0f}")
    rows = {"best": f"{best.arranged}, images/s: {_ranged(best.images_per_s, _rate)}, % of linear: {share}"}
    if best.arranged != asked.arranged:
        gain = asked.step_s.expected / best.step_s.expected
        rows["best"] += f": {gain:.2f}× as fast as {asked.arranged}"
    rows["what binds"] = plan.constraint.sentence
    rows["memory of a worker"] = show_parts(best.worker_memory)
    if best.server_memory:
        rows["memory of a server"] = show_parts(best.server_memory)
    hours, cost = best.hours, best.cost
    if hours is not None:
        low, high = show_time(3600 * hours.low), show_time(3600 * hours.high)
        rows["to the end"] = f"{show_time(3600 * hours.expected)} ({low} to {high}), without evaluations"
    if cost is not None:
        hosts = f"{best.hosts} host{'s' * (best.hosts > 1)}"
        rows["cost"] = f"{cost.expected:,.0f} ({cost.low:,.0f} to {cost.high:,.0f}) of {hosts}"
    return {**rows, **run_rows(plan.setup, best)}


def assumptions(plan: Plan) -> list[str]:
    """What the plan rests on that was neither given nor measured."""
    setup, cluster = plan.setup, plan.setup.cluster
    said = [f"compute speed ± {100 * setup.achieved.share:.0f} %, by {setup.achieved.basis}"]
    if cluster.link is not None and plan.best.job.all_hosts > 1:
        link = setup.link
        said.append(f"{cluster.link} links carry {link.achieved:.2f} of their rate ({link.low} to {link.high})")
    if cluster.spread is None and plan.best.arranged.workers > 1:
        said.append(f"compute times vary by {100 * plan.best.job.spread:.0f} % between steps and workers (--from RUN)")
    if setup.input_rate(plan.best.arranged.workers) is None and not setup.data.in_memory:
        need = plan.best.images_per_s.expected / plan.best.job.hosts
        cores = max(1.0, need / cluster.table.software.input.images_per_s)
        said.append(
            f"input is never waited for: a host needs {need:,.0f} images/s, about {cores:.0f} cores (--cores N)"
        )
    return said


def plan_text(plan: Plan) -> str:
    """What a terminal would show, as text."""
    out = io.StringIO()
    print_plan(Console(file=out, width=160, force_terminal=True, color_system=None), plan)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _percent(found: Range) -> str:
    """-9 to +23 %."""
    low, high = (100 * (end / found.expected - 1) for end in (found.low, found.high))
    return f"{low:+.0f} to {high:+.0f} %"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _part(found: Range) -> str:
    """6.0 (2.1 to 26); empty where it is nothing."""
    if found.high < 5e-5:
        return ""
    return _ranged(found, lambda seconds: f"{1e3 * seconds:,.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.1f}")


def _ranged(found: Range, show: Callable[[float], str]) -> str:
    expected, low, high = map(show, (found.expected, found.low, found.high))
    return expected if low == high else f"{expected} ({low} to {high})"
