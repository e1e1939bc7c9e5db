"""A plan as text, as tables of the terminal, and as plain data."""

import io
from typing import Any

from rich.console import Console

from phalanx.observe.tables import print_line, print_rows, print_table
from phalanx.plan.memory import show_parts
from phalanx.plan.plan import Plan
from phalanx.plan.predict import Prediction, Range
from phalanx.plan.simulate import MEANING, PARTS
from phalanx.plan.units import show_ms, show_time

COLUMNS = ("workers", "hosts", "step", "range", "images/s", "speed-up", "efficiency", *PARTS, "time", "cost")


def row_of(predicted: Prediction) -> list[str]:
    """One line of the table."""
    job, step = predicted.job, predicted.step_s
    hours, cost = predicted.hours, predicted.cost
    return [
        str(predicted.arranged.workers),
        str(job.all_hosts),
        show_ms(step.expected),
        f"{1e3 * step.low:,.0f}-{1e3 * step.high:,.0f}",
        f"{predicted.images_per_s.expected:,.0f}"
        if predicted.images_per_s.expected >= 100
        else f"{predicted.images_per_s.expected:,.1f}",
        f"{predicted.speed_up:.2f}",
        f"{100 * predicted.efficiency:.0f} %",
        *(_part(predicted.simulated.parts[part]) for part in PARTS),
        show_time(3600 * hours.expected) if hours else "?",
        f"{cost.expected:,.0f}" if cost else "",
    ]


def _part(seconds: float) -> str:
    return "" if seconds < 5e-5 else f"{1e3 * seconds:,.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.1f}"


def print_plan(console: Console, plan: Plan) -> None:
    """The table, the best arrangement with its reasons, and the command."""
    setup, best = plan.setup, plan.best
    columns = [name for name in COLUMNS if name != "cost" or setup.cluster.price is not None]
    rows = [row_of(each)[: len(columns)] for each in plan.rows]
    print_line(console, _title(plan))
    print_table(console, columns, rows, numbers=columns)
    print_line(console, f"{', '.join(f'{part}: {MEANING[part]}' for part in PARTS)}; in ms")
    print_rows(console, best_rows(plan), bold=("run", "what binds"))
    for note in plan.notes:
        print_line(console, f"note: {note}")
    for each in assumptions(plan):
        print_line(console, f"assumed: {each}")
    if best.total_steps is None:
        print_line(
            console, f"hours are not known: nobody knows how many images {setup.config.data.source} has; --samples N"
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
    best, asked = plan.best, plan.asked
    rows = {"best": f"{best.arranged}, {_range_of(best)}"}
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
        rows["cost"] = f"{cost.expected:,.0f} ({cost.low:,.0f} to {cost.high:,.0f})"
    rows["run"] = plan.command
    return rows


def _range_of(predicted: Prediction) -> str:
    speed: Range = predicted.images_per_s
    share = f"{100 * predicted.efficiency:.0f} % of linear"
    return f"{speed.expected:,.0f} images/s ({speed.low:,.0f} to {speed.high:,.0f}), {share}"


def assumptions(plan: Plan) -> list[str]:
    """What the plan rests on that was neither given nor measured."""
    setup, cluster = plan.setup, plan.setup.cluster
    said = [f"compute speed ± {100 * setup.achieved.share:.0f} %, by {setup.achieved.basis}"]
    if cluster.link is not None and plan.best.job.all_hosts > 1:
        link = setup.link
        said.append(f"{cluster.link} links carry {link.achieved:.2f} of their rate ({link.low} to {link.high})")
    if cluster.spread is None and plan.best.arranged.workers > 1:
        said.append(f"compute times vary by {100 * plan.best.job.spread:.0f} % between steps and workers (--from RUN)")
    if setup.input_rate is None and not setup.data.in_memory:
        need = plan.best.images_per_s.expected / plan.best.job.hosts
        cores = need / cluster.table.software.input.images_per_s
        said.append(
            f"input is never waited for: a host needs {need:,.0f} images/s, about {cores:.0f} cores (--cores N)"
        )
    return said


def plan_text(plan: Plan) -> str:
    """What is printed, as text."""
    out = io.StringIO()
    print_plan(Console(file=out, width=200, force_terminal=False), plan)
    return out.getvalue().rstrip("\n")


def table_text(plan: Plan) -> str:
    """The table alone, in columns."""
    rows = [list(COLUMNS), *(row_of(each) for each in plan.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "recipe": plan.setup.config.name,
        "model": plan.setup.config.model.name,
        "precision": plan.setup.precision,
        "cluster": plan.setup.cluster.model_dump(mode="json", exclude_unset=True),
        "rows": [prediction_data(each) for each in plan.rows],
        "best": prediction_data(plan.best),
        "constraint": {"kind": plan.constraint.kind, "gain": plan.constraint.gain, "why": plan.constraint.sentence},
        "command": plan.command,
        "notes": plan.notes,
        "assumed": assumptions(plan),
    }


def prediction_data(predicted: Prediction) -> dict[str, Any]:
    arranged, hours, cost = predicted.arranged, predicted.hours, predicted.cost

    def numbers(found: Range | None) -> list[float] | None:
        return None if found is None else [found.expected, found.low, found.high]

    return {
        "workers": arranged.workers,
        "hosts": predicted.job.all_hosts,
        "method": predicted.job.method,
        "servers": arranged.servers if arranged.method == "pserver" else 0,
        "mode": arranged.mode,
        "compress": arranged.compress,
        "batch_size": predicted.job.batch,
        "images_per_step": predicted.job.images,
        "step_s": numbers(predicted.step_s),
        "parts_s": {part: predicted.simulated.parts[part] for part in PARTS},
        "busy": predicted.simulated.busy,
        "images_per_s": numbers(predicted.images_per_s),
        "speed_up": predicted.speed_up,
        "efficiency": predicted.efficiency,
        "worker_memory_bytes": predicted.worker_memory,
        "server_memory_bytes": predicted.server_memory,
        "hours": numbers(hours),
        "cost": numbers(cost),
    }
