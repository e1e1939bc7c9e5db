"""How a run looks in a terminal and in a notebook."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from phalanx.errors import UserError
from phalanx.observe.lines import accuracies, percent
from phalanx.observe.results import RunResult
from phalanx.runs.score import MAP


def run_text(result: RunResult) -> str:
    """A line for the run, and one for each thing that is known of it."""
    return "\n".join([f"Run {_near(result.path)}", *(f"  {name:<8} {text}" for name, text in _rows(result))])


def run_html(result: RunResult) -> str:
    """The same as a table, with the curves."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in _rows(result)
    )
    return f"<b>Run {escape(_near(result.path))}</b><table>{rows}</table>{_curves(result)}"


def folds_text(path: Path, report: Mapping[str, Any]) -> str:
    """A line for a cross-validation, and one for each number that its folds have found."""
    rows = [f"  {name:<10} {text}" for name, text in _fold_rows(report)]
    return "\n".join([f"CrossValidation {_near(str(path))}", *rows])


def folds_html(path: Path, report: Mapping[str, Any]) -> str:
    """The same as a table."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in _fold_rows(report)
    )
    return f"<b>CrossValidation {escape(_near(str(path)))}</b><table>{rows}</table>"


def _fold_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "folds", f"{report['num_folds']}" + ("" if report["finished"] else ", not all done")
    for name, mean in report.get("mean", {}).items():
        spread, is_share = report["std"][name], "top" in name
        yield name, f"{percent(mean)} ± {percent(spread)}" if is_share else f"{mean:.4f} ± {spread:.4f}"
    if pooled := report.get("pooled"):
        yield "all folds", f"top-1 {percent(pooled['top1'])} on {pooled['samples']:,} images"


def _rows(result: RunResult) -> Iterator[tuple[str, str]]:
    yield "state", result.state if result.state == "finished" or not result.remarks else result.remarks[-1]
    if result.model:
        yield "model", result.model
    for name, top1, topk, mean_ap in (
        ("best", result.best_top1, result.best_topk, result.best_map),
        ("last", result.final_top1, result.final_topk, result.final_map),
    ):
        if top1 is not None or mean_ap is not None:
            yield name, accuracies(top1, topk, result.k or 1, ", ", {MAP: mean_ap})
    if result.steps is not None and result.epochs is not None:
        took = "" if result.wall_s is None else f" in {result.wall_s:.1f} s"
        yield "trained", f"{result.epochs:.2f} epochs, {result.steps:,} of {result.total_steps or 0:,} steps{took}"
    if result.workers is not None and result.workers > 1:
        yield "workers", f"{result.workers}, {result.update_method}"


def _curves(result: RunResult) -> str:
    from phalanx.observe.plots import curves_figure

    with suppress(UserError):  # nothing to draw yet
        picture = b64encode(curves_figure([Path(result.path)]).figure._repr_png_()).decode()
        return f"<img style='max-width:100%' src='data:image/png;base64,{picture}'/>"
    return ""


def _near(path: str) -> str:
    """Relative to the current folder, where it is in it."""
    with suppress(ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
