"""What a run prints when it ends: accuracy, speed, where its files are, and the next commands."""

from rich.console import Console
from rich.text import Text

from phalanx.observe.curves import NothingToDraw
from phalanx.observe.lines import accuracies, named, other_metrics
from phalanx.observe.plots import draw_curves
from phalanx.observe.tables import print_rows
from phalanx.runs.folder import RunFolder
from phalanx.runs.summary import Summary

_FILES = ("summary.json", "curves.png", "events.jsonl", "log.txt", "quarantine.tsv", "checkpoints/")


def save_curves(folder: RunFolder) -> None:
    """Draw curves.png and curves.svg into the run folder, if there is anything to draw."""
    try:
        draw_curves([folder.path], *(folder.path / f"curves.{ending}" for ending in ("png", "svg")))
    except NothingToDraw:
        return  # stopped before the first event


def print_outcome(console: Console, folder: RunFolder, summary: Summary) -> None:
    """The result, where everything is, and how to continue."""
    finished = summary.finished
    console.print(Text("done" if finished else "stopped", style="bold green" if finished else "bold yellow"))
    rows = {}
    for name, found in (("best", summary.best), ("last", summary.last)):
        if found:
            metrics = found.get("metrics", {})
            measured = accuracies(found["top1"], found["topk"], summary.k, ", ", metrics)
            measured += named(other_metrics(metrics), between=", ")
            rows[name] = f"{measured} at step {found['step']}"
    rows["trained"] = f"{summary.epochs:.2f} epochs, {summary.steps:,} steps in {summary.wall_s:.1f} s"
    parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in summary.shares.items() if share > 0.005)
    rows["speed"] = f"{summary.samples_per_s:.1f} samples/s ({parts})"
    if summary.slowest:
        rows["workers"] = f"{summary.workers}; {summary.slowest}"
    path = folder.path
    rows["folder"] = f"{path}: {', '.join(name for name in _FILES if (path / name).exists())}"
    if finished:
        rows["next"] = f"phalanx eval {path}   phalanx predict {path} IMAGE…   phalanx plot {path}"
    else:
        rows["resume"] = f"phalanx train --resume {path}"
    print_rows(console, rows, bold=("best",))
