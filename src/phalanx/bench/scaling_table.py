"""Tables of scaling: speed-up and efficiency by number of workers, and the reasons of lost time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.bench.report import Table
from phalanx.bench.scaling_plan import ScalingKind, ScalingPlan
from phalanx.bench.scaling_runs import PARTS, MeasuredRun

LITTLE = 0.03  # of the time: too little for a reason
WORTH_SHOWING = 0.2  # of the lost time


@dataclass(frozen=True)
class Pair:
    """A job, and as many independent trainers as it has workers, one after the other."""

    job: MeasuredRun
    independent: MeasuredRun


Results = dict[ScalingKind, dict[int, list[Pair]]]  # by number of workers, one for each round


@dataclass(frozen=True)
class Row:
    """One number of workers, medians over rounds; ratios are taken round by round."""

    workers: int
    images_per_s: float
    lowest: float
    highest: float
    speed_up: float
    of_one: float
    of_independent: float
    job: MeasuredRun
    independent: MeasuredRun


def make_rows(by_workers: dict[int, list[Pair]]) -> list[Row]:
    """From the least to the most workers. If it was stopped, those that came last have fewer rounds."""
    one = by_workers[1]
    rows = []
    for workers, pairs in sorted(by_workers.items()):
        speeds = [pair.job.images_per_s for pair in pairs]
        speed_up = statistics.median(
            pair.job.images_per_s / base.job.images_per_s for pair, base in zip(pairs, one, strict=False)
        )
        rows.append(
            Row(
                workers,
                statistics.median(speeds),
                min(speeds),
                max(speeds),
                speed_up,
                speed_up / workers,
                statistics.median(pair.job.images_per_s / pair.independent.images_per_s for pair in pairs),
                median_run([pair.job for pair in pairs]),
                median_run([pair.independent for pair in pairs]),
            )
        )
    return rows


def median_run(runs: Sequence[MeasuredRun]) -> MeasuredRun:
    return MeasuredRun(
        statistics.median(run.images_per_s for run in runs),
        statistics.median(run.step_s for run in runs),
        {name: statistics.median(run.parts[name] for run in runs) for name in PARTS},
        statistics.median(run.waiting_s for run in runs),
    )


def reason(row: Row, one: Row, kind: ScalingKind) -> str:
    """The parts in which a step takes longer than one worker's step, the largest first."""
    if row.workers == 1:
        return ""
    share = 1 if kind == "weak" else row.workers
    lost_s = row.job.step_s - one.job.step_s / share
    if lost_s < LITTLE * row.job.step_s:
        return "nothing to speak of"
    excess = {name: row.job.parts[name] - one.job.parts[name] / share for name in PARTS}
    excess["between steps"] = row.job.other_s - one.job.other_s / share
    parts = []
    for name, seconds in sorted(excess.items(), key=lambda item: -item[1])[:2]:
        if seconds > WORTH_SHOWING * lost_s:
            parts.append(f"{name} +{1e3 * seconds:.0f} ms{_because(name, seconds, row, one, kind)}")
    return "; ".join(parts) or "a little of everything"


def _because(name: str, seconds: float, row: Row, one: Row, kind: ScalingKind) -> str:
    if name == "compute":
        share = 1 if kind == "weak" else row.workers
        alike = row.independent.parts[name] - one.job.parts[name] / share
        if alike > seconds / 2:
            cause = "hardware is shared" if kind == "weak" else "smaller batches, shared hardware"
            return f" ({cause}: independent trainers lose {1e3 * alike:.0f})"
        return f" (independent trainers lose {max(0.0, 1e3 * alike):.0f}: the exchange works on the same cores)"
    if name == "exchange":
        waiting = row.job.waiting_s
        return f" ({1e3 * waiting:.0f} of it waiting for the slowest)" if waiting > 0.1 * row.job.parts[name] else ""
    if name == "update" and kind == "strong":
        return " (each worker makes it whole)"
    return ""


def make_tables(results: Results, subject: str, batch_size: int, rounds: int, notes: Sequence[str]) -> list[Table]:
    """A table for weak and one for strong scaling, and one of where the time of a step goes."""
    tables = []
    columns = ("workers", "ms/step", "images/s", "spread", "speed-up", "of N × one", "of N independent", "lost to")
    meaning = {"weak": f"{batch_size} images for each worker", "strong": f"{batch_size} images shared by all"}
    runs = "one round" if rounds == 1 else f"{rounds} rounds"
    for kind, by_workers in results.items():
        rows = make_rows(by_workers)
        cells = [
            [
                str(row.workers),
                f"{1e3 * row.job.step_s:,.0f}",
                f"{row.images_per_s:,.1f}",
                f"{row.lowest:,.1f} to {row.highest:,.1f}",
                f"{row.speed_up:.2f}",
                f"{100 * row.of_one:.0f} %",
                f"{100 * row.of_independent:.0f} %",
                reason(row, rows[0], kind),
            ]
            for row in rows
        ]
        title = f"{kind.capitalize()} scaling, {meaning[kind]} a step: {subject}, a thread each, {runs}"
        tables.append(Table(title, columns, cells))
    explained = (
        "of N × one: efficiency against N times one worker's speed",
        "of N independent: against N trainers at the same time that exchange nothing, on the same cores",
        *notes,
    )
    tables.append(_time_table(results, explained))
    return tables


def _time_table(results: Results, notes: tuple[str, ...]) -> Table:
    cells = []
    for kind, by_workers in results.items():
        for row in make_rows(by_workers):
            for name, run in (("job", row.job), ("independent", row.independent)):
                if row.workers == 1 and kind != next(iter(results)):
                    continue  # one worker is the same in both
                milliseconds = [run.step_s, *(run.parts[part] for part in PARTS), run.other_s]
                label = f"{kind}, {row.workers}, {name}" if row.workers > 1 else f"1, {name}"
                cells.append([label, *(f"{1e3 * seconds:,.1f}" for seconds in milliseconds)])
    return Table("Where a step's time goes, ms, means over workers", ("", "step", *PARTS, "between"), cells, notes)


def measured_of(plan: ScalingPlan, results: Results) -> dict[str, Any]:
    """For `phalanx plan --check`. One worker's speed is that of independent trainers, which share its hardware too."""
    rows = []
    for kind, by_workers in results.items():
        for row in make_rows(by_workers):
            if row.workers == 1 and kind != plan.kinds[0]:
                continue  # one worker is the same in both
            rows.append(
                {
                    "workers": row.workers,
                    "method": plan.method,
                    "servers": plan.servers if plan.method == "pserver" else 1,
                    "mode": plan.mode,
                    "compress": plan.compress,
                    "batch_size": plan.batch_of(kind, row.workers),
                    "images_per_s": row.images_per_s,
                    "alone_images_per_s": row.independent.images_per_s / row.workers,
                }
            )
    return {"model": plan.model, "image_size": plan.size, "batch_size": plan.batch_size, "rows": rows}


def make_figures(results: Results) -> dict[str, float]:
    """The results for the history."""
    figures = {}
    for kind, by_workers in results.items():
        for row in make_rows(by_workers):
            if row.workers > 1:
                figures[f"{kind}, {row.workers} workers, of {row.workers} × one"] = row.of_one
                figures[f"{kind}, {row.workers} workers, of independent"] = row.of_independent
    one = make_rows(next(iter(results.values())))[0]
    return {"1 worker, images/s": one.images_per_s, "1 worker, of independent": one.of_independent} | figures
