"""Draw the learning curves of one or several runs in one figure, from their events."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from phalanx.errors import UserError
from phalanx.observe.figures import refuse_other_endings, save_figure
from phalanx.runs import events as ev
from phalanx.runs.events import Record, read_events
from phalanx.runs.score import MAP, TOP1

if TYPE_CHECKING:
    from phalanx.observe.notebook_figure import NotebookFigure

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = ("step", "epoch", "time")
_LABELS = {"step": "step", "epoch": "epoch", "time": "seconds of training"}


class NothingToDraw(UserError):
    """A run without a step or an evaluation."""


@dataclass(frozen=True)
class Curve:
    """One series of points."""

    x: list[float]
    y: list[float]

    def scaled(self, by: float) -> "Curve":
        return Curve(self.x, [by * value for value in self.y])


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run."""

    label: str
    train_loss: Curve
    train_top1: Curve
    val_loss: Curve
    val_top1: Curve  # or mAP, where a sample may have several labels
    rate: Curve
    metrics: dict[str, Curve]  # the user's own, by name
    metric: str = TOP1  # what `val_top1` is


def read_curves(run: Path, axis: Axis, label: str) -> RunCurves:
    """The curves of a run against steps, epochs or seconds of training (without pauses before a resume)."""
    records = read_events(run)
    starts = [record for record in records if record["kind"] == ev.Start.kind]
    if not starts:
        raise NothingToDraw(
            f"{run} has nothing to draw", why="it ended before training began", remedy="see its log.txt"
        )
    per_epoch = starts[-1]["steps_per_epoch"]
    places = _places(records, axis, per_epoch)

    def curve(kind: str, field: str, scale: float = 1.0) -> Curve:
        chosen = [
            (x, r[field]) for r, x in zip(records, places, strict=True) if r["kind"] == kind and r[field] is not None
        ]
        return Curve([x for x, _ in chosen], [scale * value for _, value in chosen])

    metrics = _metrics(records, places)
    judged = metrics.pop(MAP, None)  # the first panel shows it
    return RunCurves(
        label,
        train_loss=curve(ev.Step.kind, "loss"),
        train_top1=curve(ev.Epoch.kind, "top1", 100),
        val_loss=curve(ev.Eval.kind, "loss"),
        val_top1=curve(ev.Eval.kind, "top1", 100) if judged is None else judged.scaled(100),
        rate=curve(ev.Step.kind, "lr"),
        metrics=metrics,
        metric=TOP1 if judged is None else MAP,
    )


def _metrics(records: list[Record], places: list[float]) -> dict[str, Curve]:
    """The numbers of the user's own metrics, by name."""
    found: dict[str, Curve] = {}
    for record, place in zip(records, places, strict=True):
        for name, value in record.get("metrics", {}).items() if record["kind"] == ev.Eval.kind else ():
            if value is not None:
                curve = found.setdefault(name, Curve([], []))
                curve.x.append(place)
                curve.y.append(value)
    return found


def _places(records: list[dict[str, Any]], axis: Axis, per_epoch: int) -> list[float]:
    if axis == "step":
        return [record.get("step", 0) for record in records]
    if axis == "epoch":
        return [record.get("step", 0) / per_epoch for record in records]
    return seconds_of_training(records)


def seconds_of_training(records: Sequence[Record]) -> list[float]:
    """Seconds of training at each event of a run, without pauses before a resume."""
    places, elapsed, before = [], 0.0, None
    for record in records:
        if record["kind"] != ev.Start.kind and before is not None:
            elapsed += max(0.0, record["t"] - before)
        before = record["t"]
        places.append(elapsed)
    return places


def draw_curves(runs: list[Path], *outs: Path, axis: Axis = "epoch") -> None:
    """Draw the curves of the runs into files. A file's ending chooses PNG, SVG or PDF."""
    for out in outs:
        refuse_other_endings(out)
    save_figure(curves_figure(runs, axis), *outs)


def curves_figure(runs: list[Path], axis: Axis = "epoch") -> "NotebookFigure":
    """Accuracy, loss and learning rate of the runs in one figure."""
    named = [read_curves(run, axis, label) for run, label in zip(runs, run_names(runs), strict=True)]
    if not any(curves.val_top1.x or curves.train_loss.x for curves in named):
        raise NothingToDraw(
            "there is nothing to draw yet",
            why="no step or evaluation has been reported",
            remedy="train a little longer",
        )
    from phalanx.observe.notebook_figure import NotebookFigure

    names = list(dict.fromkeys(name for curves in named for name in curves.metrics))
    panels = 3 + len(names)
    figure = NotebookFigure(figsize=(4 * panels, 3.8), layout="constrained", dpi=130)
    accuracy, loss, rate, *others = figure.subplots(1, panels)
    single = len(named) == 1
    for number, curves in enumerate(named):
        colour = f"C{number % 10}"
        mark = "o" if len(curves.val_top1.x) <= 30 else ""
        accuracy.plot(curves.val_top1.x, curves.val_top1.y, colour, marker=mark, ms=3, label=curves.label)
        accuracy.plot(curves.train_top1.x, curves.train_top1.y, colour, ls=":", alpha=0.8)
        loss.plot(curves.train_loss.x, curves.train_loss.y, colour, ls=":", alpha=0.8)
        loss.plot(curves.val_loss.x, curves.val_loss.y, colour, marker=mark, ms=3)
        rate.plot(curves.rate.x, curves.rate.y, colour)
        for name, axes in zip(names, others, strict=True):
            curve = curves.metrics.get(name, Curve([], []))
            axes.plot(curve.x, curve.y, colour, marker=mark, ms=3)
    titles = dict.fromkeys("mAP" if curves.metric == MAP else "top-1 accuracy" for curves in named)
    accuracy.set(title=f"{' or '.join(titles)}, %", xlabel=_LABELS[axis])
    loss.set(title="loss", xlabel=_LABELS[axis])
    rate.set(title="learning rate", xlabel=_LABELS[axis])
    for name, axes in zip(names, others, strict=True):
        axes.set_title(name, parse_math=False)
        axes.set_xlabel(_LABELS[axis])
    accuracy.plot([], [], "grey", label="validation")
    accuracy.plot([], [], "grey", ls=":", label="training")
    for axes in (accuracy, loss, rate, *others):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    if single:
        figure.suptitle(named[0].label, parse_math=False)  # a folder's name may hold $
    handles, labels = accuracy.get_legend_handles_labels()
    legend = accuracy.legend(handles[single:], labels[single:], fontsize=8, loc="lower right")
    for label in legend.get_texts():
        label.set_parse_math(False)
    return figure


def run_names(runs: Sequence[Path]) -> list[str]:
    """Folder names, with their parents where two are equal."""
    names = [run.resolve().name for run in runs]
    doubled = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{run.resolve().parent.name}/{name}" if name in doubled else name
        for run, name in zip(runs, names, strict=True)
    ]
