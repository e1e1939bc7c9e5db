"""`phalanx bench time-to-accuracy`: wall seconds until a recipe's validation reaches a target, over several seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from rich.console import Console

from phalanx.bench.report import Table, tell
from phalanx.bench.training import Trained, TrainingFailed, train_together
from phalanx.errors import UserError
from phalanx.observe.lines import percent
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line
from phalanx.runs import events as ev
from phalanx.runs.events import Record
from phalanx.runs.folder import create_run


@dataclass(frozen=True)
class Reached:
    """The result of one seed. Seconds count from the start of its process."""

    start_s: float  # until the first step could begin
    reached_s: float | None  # None: never
    epochs: float | None
    final_top1: float
    best_top1: float
    wall_s: float


def parse_target(text: str) -> float:
    """A share such as 0.94, or percent with its sign such as 94%."""
    is_percent = text.strip().endswith("%")
    try:
        number = Decimal(text.strip().removesuffix("%"))
    except InvalidOperation:
        number = Decimal("nan")
    share = number / 100 if is_percent else number
    if share.is_nan() or not 0 < share <= 1:
        meant = not is_percent and not share.is_nan() and 1 < number <= 100
        spelled = f"{number / 100} or {number}%" if meant else "0.94 or 94%"
        raise UserError(
            f"--target {text} is no accuracy",
            why="it is a share above 0 and up to 1, or percent with a % sign",
            remedy=f"--target {spelled}",
        )
    return float(share)


def parse_seeds(text: str) -> list[int]:
    """A number of seeds from 0, or a list: 3 is 0,1,2."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts) or text.strip() == "0" or len({*parts}) < len(parts):
        raise UserError(
            f"--seeds {text} names no runs",
            why="it is how many there are, or a list of different seeds with commas",
            remedy="--seeds 3, or --seeds 0,1,2",
        )
    return [int(part) for part in parts] if "," in text else list(range(int(parts[0])))


def reached(trained: Trained, target: float) -> Reached:
    """From a run's events: the first validation that reached the target, and the final result."""
    begun = trained.begun
    evaluations = [record for record in trained.records if record["kind"] == ev.Eval.kind]
    if not evaluations:
        raise TrainingFailed("it has no validation")
    if evaluations[0]["top1"] is None:
        raise TrainingFailed("it has several labels a sample, and the target is a top-1 accuracy")
    first = next((record for record in evaluations if record["top1"] >= target), None)
    start = next(record["t"] for record in trained.records if record["kind"] == ev.Start.kind)
    return Reached(
        start_s=start - begun,
        reached_s=None if first is None else first["t"] - begun,
        epochs=None if first is None else first["epoch"],
        final_top1=evaluations[-1]["top1"],
        best_top1=max(record["top1"] for record in evaluations),
        wall_s=_end(trained.records) - begun,
    )


def _end(records: Sequence[Record]) -> float:
    return float(records[-1]["t"])


def bench_time_to_accuracy(
    console: Console,
    words: Sequence[str],
    name: str,
    target: float,
    seeds: Sequence[int],
    *,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Train once for each seed, one after the other, and report. `words` are the arguments of `phalanx train`."""
    folder = create_run(None, f"{name}-to-{target:g}").path
    results: dict[int, Reached] = {}
    failed: dict[int, str] = {}
    stopped = False
    with progress(console, "percent of all steps", 100 * len(seeds)) as advance:
        for seed in seeds:
            shown = 0

            def watch(share: float) -> None:
                nonlocal shown
                advance(int(100 * share) - shown)
                shown = int(100 * share)

            out = folder / f"seed-{seed}"
            try:
                (trained,) = train_together([(["train", *words, "--seed", str(seed), "--out", str(out)], out)], watch)
                results[seed] = reached(trained, target)
            except TrainingFailed as error:
                failed[seed] = str(error)
            except KeyboardInterrupt:
                if not results:
                    raise
                stopped = True
                break
            watch(1.0)
    if not results:
        raise UserError(
            f"no seed of {name} could be trained",
            why=next(iter(failed.values())),
            remedy="see the output of `phalanx train` with the same settings",
        )
    table = make_table(name, target, results, failed)
    figures = make_figures(results, failed)
    falling = [figure for figure in figures if figure.endswith(" s")]
    print_line(console, f"runs: {folder}")
    if stopped:
        print_line(console, f"stopped by you after {len(results) + len(failed)} of {len(seeds)} seeds")
    tell(
        console,
        "time-to-accuracy",
        [table],
        figures,
        subject=f"{' '.join(words)} to {percent(target)}",
        fewer_is_better=falling,
        markdown=markdown,
        json_file=json_file,
    )
    if stopped:
        raise KeyboardInterrupt


def make_table(name: str, target: float, results: Mapping[int, Reached], failed: Mapping[int, str]) -> Table:
    """A row for each seed; then the mean over seeds that reached the target, and a note about the others."""
    rows = [
        [
            f"seed {seed}",
            "never" if each.reached_s is None else f"{each.reached_s:.1f}",
            "-" if each.epochs is None else f"{each.epochs:.2f}",
            percent(each.final_top1),
            percent(each.best_top1),
            f"{each.start_s:.1f}",
            f"{each.wall_s:.1f}",
        ]
        for seed, each in results.items()
    ]
    seconds = [each.reached_s for each in results.values() if each.reached_s is not None]
    final = [each.final_top1 for each in results.values()]
    if seconds:
        rows.append(["mean", f"{statistics.mean(seconds):.1f}", "", percent(statistics.mean(final)), "", "", ""])
    notes = []
    if len(seconds) > 1:
        spread = statistics.stdev(seconds)
        notes.append(f"{min(seconds):.1f} to {max(seconds):.1f} s, standard deviation {spread:.1f} s")
    never = [seed for seed, each in results.items() if each.reached_s is None]
    if never:
        who = f"seed{'s' * (len(never) > 1)} {', '.join(map(str, never))}"
        mean = f"; the mean is of the {len(seconds)} that did" if seconds else ""
        notes.append(f"{who} never reached {percent(target)}{mean}")
    notes += [f"seed {seed} failed: {why}" for seed, why in failed.items()]
    notes.append(
        "seconds from the process's start to the end of that validation, start-up and all validations included"
    )
    runs = len(results) + len(failed)
    title = f"{name} to {percent(target)} top-1, {runs} seed{'s' * (runs > 1)}"
    columns = ("", "seconds", "epochs", "final top-1", "best top-1", "start-up s", "whole run s")
    return Table(title, columns, rows, tuple(notes))


def make_figures(results: Mapping[int, Reached], failed: Mapping[int, str]) -> dict[str, float]:
    """The results for the history; none if no seed reached the target."""
    seconds = [each.reached_s for each in results.values() if each.reached_s is not None]
    figures = {
        "final top-1": statistics.mean(each.final_top1 for each in results.values()),
        "share of seeds that got there": len(seconds) / (len(results) + len(failed)),
    }
    return figures | ({"mean s": statistics.mean(seconds)} if seconds else {})
