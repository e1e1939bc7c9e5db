"""Results of runs, one row each, read from their files; also of running, stopped or damaged runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from phalanx.config.text import read_json, read_yaml
from phalanx.errors import UserError
from phalanx.observe.curves import run_names, seconds_of_training
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.evaluations import best_of, evaluations
from phalanx.runs.events import Record, read_events
from phalanx.runs.folder import RunFolder, find_run
from phalanx.runs.score import MAP


@dataclass
class RunResult:
    """One run. Accuracies are in 0..1. Unknown values are None, and `remarks` say why."""

    run: str  # a short name, unique among the runs compared
    path: str
    recipe: str | None = None
    model: str | None = None
    best_top1: float | None = None
    final_top1: float | None = None
    best_topk: float | None = None
    final_topk: float | None = None
    k: int | None = None  # 1 if only top-1 was measured
    best_map: float | None = None  # where a sample may have several labels, instead of top-1
    final_map: float | None = None
    steps: int | None = None
    total_steps: int | None = None
    epochs: float | None = None
    steps_per_s: float | None = None
    images_per_s: float | None = None
    wall_s: float | None = None  # without pauses before a resume
    workers: int | None = None
    servers: int | None = None  # 0 without parameter servers
    update_method: str | None = None
    mode: str | None = None  # of parameter servers
    compress: str | None = None
    precision: str | None = None
    state: str = "unknown"  # finished, stopped, or unfinished (running or killed)
    remarks: list[str] = field(default_factory=list)


def read_results(runs: Sequence[Path]) -> list[RunResult]:
    """A row for each run. Other folders are refused; missing parts of a run are remarked on."""
    folders = [find_run(run) for run in runs]
    return [_result(folder, name) for folder, name in zip(folders, run_names(runs), strict=True)]


def _result(folder: RunFolder, name: str) -> RunResult:
    row = RunResult(name, str(folder.path))
    _read_config(folder, row)
    try:
        records = read_events(folder.path)
        _read_records(records, row)
    except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
        problem = error.what if isinstance(error, UserError) else f"{ev.EVENTS_FILE} has an invalid event"
        row.remarks.append(f"{problem}: the summary was read instead" if _read_summary(folder, row) else problem)
    if checkpoint.latest_path(folder.checkpoints) is None:
        row.remarks.append("no checkpoint here")
    return row


def _read_config(folder: RunFolder, row: RunResult) -> None:
    """Read config.yaml without validation: the run may be of an older version, or damaged."""
    try:
        tree = read_yaml(folder.config.read_text(encoding="utf-8"))
        row.recipe, row.model = str(tree["name"]), str(tree["model"]["name"])
        exchange = tree["exchange"]
        row.update_method, row.workers = str(exchange["method"]), int(exchange["workers"])
        served = row.update_method == "pserver"
        row.servers, row.mode = (int(exchange["servers"]), str(exchange["mode"])) if served else (0, None)
        row.compress = None if exchange["compress"] == "none" else str(exchange["compress"])
        row.precision = str(tree["machine"]["precision"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else "cannot be read"
        row.remarks.append(f"{folder.config.name} {why}")


def _read_records(records: Sequence[Record], row: RunResult) -> None:
    starts = [record for record in records if record["kind"] == ev.Start.kind]
    if not starts:
        row.state = "unfinished"
        row.remarks.append("training has not begun")
        return
    start, last = starts[-1], records[-1]
    row.model = start["model"]
    row.total_steps = start["total_steps"]
    row.precision = start["decisions"].get("precision", row.precision or "").partition(" ")[0] or None
    row.steps = max((record["step"] for record in records if "step" in record), default=0)
    row.epochs = row.steps / start["steps_per_epoch"]
    row.wall_s = seconds_of_training(records)[-1]
    _read_accuracy(records, row)
    _read_speed(records, row)
    _read_state(records, last, row)


def _read_accuracy(records: Sequence[Record], row: RunResult) -> None:
    measured = sorted(evaluations(records), key=lambda one: one.step)
    best = best_of(measured)
    if best is None:
        row.remarks.append("nothing is evaluated yet")
        return
    final = measured[-1]
    row.best_top1, row.best_topk = best.top1, best.topk
    row.final_top1, row.final_topk, row.k = final.top1, final.topk, final.k
    row.best_map, row.final_map = best.metrics.get(MAP), final.metrics.get(MAP)


def _read_speed(records: Sequence[Record], row: RunResult) -> None:
    """Speed over all reported steps, without evaluation and saving."""
    steps, seconds, images, before = 0, 0.0, 0.0, 0
    for record in records:
        if record["kind"] == ev.Resume.kind:
            before = record["step"]
        if record["kind"] != ev.Step.kind:
            continue
        count = max(1, record["step"] - before)
        before = record["step"]
        took = count * sum(record[name] for name in ("data_s", "compute_s", "exchange_s", "update_s"))
        used = sum(end - first for _, first, end in record.get("used", []))
        # Without lockstep, only the first worker's speed is reported, and no samples.
        images += used or took * record["samples_per_s"] * (row.workers or 1)
        steps, seconds = steps + count, seconds + took
    if seconds > 0:
        row.steps_per_s, row.images_per_s = steps / seconds, images / seconds


def _read_state(records: Sequence[Record], last: Record, row: RunResult) -> None:
    ends = [number for number, one in enumerate(records) if one["kind"] in (ev.End.kind, ev.Stop.kind)]
    begins = [number for number, one in enumerate(records) if one["kind"] == ev.Start.kind]
    over = records[ends[-1]] if ends and ends[-1] > begins[-1] else None
    if over is not None and over["kind"] == ev.End.kind:
        row.state, row.wall_s = "finished", over["wall_s"]
        return
    place = f"step {row.steps:,} of {row.total_steps:,}"
    if over is not None:
        row.state = "stopped"
        row.remarks.append(f"stopped at {place}: {over['reason']}")
    else:
        row.state = "unfinished"
        row.remarks.append(f"running or killed at {place}; last event {_ago(time.time() - last['t'])} ago")


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _read_summary(folder: RunFolder, row: RunResult) -> bool:
    """Read summary.json, if the events cannot be read."""
    try:
        summary: dict[str, Any] = read_json(folder.summary.read_bytes())
        best, last = summary["best"] or {}, summary["last"] or {}
        row.best_top1, row.best_topk = best.get("top1"), best.get("topk")
        row.final_top1, row.final_topk = last.get("top1"), last.get("topk")
        row.best_map, row.final_map = (found.get("metrics", {}).get(MAP) for found in (best, last))
        row.k, row.model, row.workers = summary["k"], summary["model"], summary["workers"]
        row.steps, row.epochs = summary["steps"], summary["epochs"]
        row.images_per_s, row.wall_s = summary["samples_per_s"], summary["wall_s"]
        row.precision = summary["decisions"].get("precision", "").partition(" ")[0] or row.precision
        row.state = "finished" if summary["finished"] else "stopped"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
