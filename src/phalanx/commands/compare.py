"""`phalanx compare`: whether two runs learned the same, and where they differ most."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.observe.lines import accuracies
from phalanx.observe.plot_options import PlotOptions
from phalanx.observe.plots import draw_curves
from phalanx.observe.tables import print_rows
from phalanx.runs import checkpoint
from phalanx.runs.folder import find_run


@dataclass(frozen=True)
class Difference:
    """The tensor in which two models differ most: by the norm of the difference over the norm of the first."""

    name: str
    relative: float
    largest: float  # of the absolute differences of its elements


def compare_runs(console: Console, one: Path, other: Path, out: Path) -> None:
    """Weights of the newest checkpoints, final and best metrics, and the curves of both in one figure."""
    left, right = (checkpoint.load(checkpoint.find(find_run(run).path, prefer_best=False)) for run in (one, other))
    rows = {"checkpoints": f"{left.path}, {right.path}"}
    rows["weights"] = _weights(left.tensors["model"], right.tensors["model"])
    for which in ("best", "last"):
        shown = [_metric(_summary(run), which) for run in (one, other)]
        rows[which] = f"{shown[0]} against {shown[1]}"
    draw_curves([one, other], out, options=PlotOptions(seeds="lines"))
    rows["curves"] = str(out)
    print_rows(console, rows)


def _weights(left: dict[str, Tensor], right: dict[str, Tensor]) -> str:
    if left.keys() != right.keys() or any(left[name].shape != right[name].shape for name in left):
        return "of different models: names or shapes do not match"
    difference = largest_difference(left, right)
    if difference is None:
        return f"identical in all {len(left)} tensors"
    sizes = f"{difference.relative:.3g} relative, {difference.largest:.3g} absolute"
    return f"largest difference in {difference.name}: {sizes}"


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> Difference | None:
    """None if every bit is the same."""
    found = None
    for name, tensor in left.items():
        if torch.equal(tensor, right[name]):
            continue
        gap = tensor.double() - right[name].double()
        relative = float(gap.norm() / tensor.double().norm().clamp_min(1e-30))
        if found is None or relative > found.relative:
            found = Difference(name, relative, float(gap.abs().max()))
    return found


def _summary(run: Path) -> dict[str, Any]:
    path = find_run(run).summary
    try:
        summary = read_json(path.read_bytes())
        if not isinstance(summary, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{run} has no summary to compare",
            why=f"{path.name} cannot be read ({error}): a run writes it when it ends or is stopped",
            remedy=f"finish it first: phalanx train --resume {run}; or print a table: --format text",
        ) from error
    return summary


def _metric(summary: dict[str, Any], which: str) -> str:
    measured = summary.get(which)
    if not measured:
        return "nothing evaluated"
    return f"{accuracies(measured['top1'], None, 1, metrics=measured.get('metrics'))} at step {measured['step']}"
