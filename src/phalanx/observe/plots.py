"""Draw the learning curves of runs and of other systems' logs in one figure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import UserError, nearest
from phalanx.observe.curve_groups import Group, Line, group_logs, line_of, named_places, recipe_of
from phalanx.observe.curves import AXES, Axis, Log, NothingToDraw
from phalanx.observe.figures import refuse_other_endings, save_figure
from phalanx.observe.logs.read import read_log
from phalanx.observe.plot_legend import add_legend, add_title, shown_labels
from phalanx.observe.plot_options import Limits, PlotOptions
from phalanx.observe.plot_style import LOOKS, Looks, figure_size, marked, run_look, settings
from phalanx.runs.score import MAP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from phalanx.observe.notebook_figure import NotebookFigure

USUAL = ("top1", MAP, "loss", "lr")  # a run has either accuracy or, with several labels a sample, mAP
_X_LABELS = {"step": "step", "epoch": "epoch", "time": "seconds of training"}
_PARTS = {"train": "training", "val": "validation"}
_TITLES = {MAP: f"{MAP}, %", "loss": "loss", "lr": "learning rate"}


@dataclass(frozen=True)
class Drawing:
    """A figure, and what its reader should know."""

    figure: "NotebookFigure"
    notes: list[str]


@dataclass
class Panel:
    """What is drawn in one panel."""

    name: str
    lines: list[tuple[int, str, Line]] = field(default_factory=list)  # number of the group, train or val

    def title(self, parts: Sequence[str]) -> str:
        """What it shows; also whether that is of training or validation, if the figure has one of the two."""
        one = len(parts) == 1 and self.name != "lr"
        words = _TITLES.get(self.name, self.name)
        if self.name.startswith("top") and self.name[3:].isdigit():
            words = f"top-{self.name[3:]}{' accuracy' * (not one)}, %"
        return f"{_PARTS[parts[0]]} {words}" if one else words


def draw_curves(runs: Sequence[str | Path], *outs: Path, options: PlotOptions | None = None) -> list[str]:
    """Draw the curves of runs and logs into files; notes for the user. A file's ending chooses PNG, SVG or PDF."""
    for out in outs:
        refuse_other_endings(out)
    drawing = curves_figure(runs, options)
    save_figure(drawing.figure, *outs)
    return drawing.notes


def curves_figure(runs: Sequence[str | Path], options: PlotOptions | None = None) -> Drawing:
    """Accuracy, loss, learning rate and own metrics of runs and logs (`PATH` or `NAME=PATH`) in one figure."""
    options = options or PlotOptions()
    places = named_places(runs)
    logs = []
    for place in places:
        log = read_log(place.path, place.label, options.tags)
        logs.append(replace(log, recipe=recipe_of(place.path)))
    axis = options.axis or _best_axis(logs)
    groups = group_logs(logs, places, options.seeds)
    panels = _panels(logs, groups, axis, options)
    if not any(panel.lines for panel in panels):
        raise _nothing(logs, axis)
    figure, label_notes = _figure(groups, panels, axis, options)
    return Drawing(figure, [*_notes(logs, groups, panels, axis, options), *label_notes])


def _best_axis(logs: Sequence[Log]) -> Axis:
    """The axis on which most can be drawn; epochs, if that is all the same."""
    return min(AXES, key=lambda axis: sum(one.missing(axis) for log in logs for one in log.series.values()))


def _panels(logs: Sequence[Log], groups: Sequence[Group], axis: Axis, options: PlotOptions) -> list[Panel]:
    """The panels asked for; else the usual ones and the users' own metrics, if there is something to draw."""
    there = list(dict.fromkeys(name.partition("/")[2] for log in logs for name in log.series))
    asked = [*options.panels, *options.ylim, *options.log]
    for name in asked:
        if name not in there:
            raise UserError(f"there is no curve {name!r}", why="no run or log has it", remedy=nearest(name, there))
    panels = []
    for name in _wanted(logs, options):
        panel = Panel(name)
        for number, group in enumerate(groups):
            for part in _parts(name, options):
                line = line_of(group, f"{part}/{name}", axis, options)
                panel.lines += [(number, part, line)] if line else []
        panels += [panel] if panel.lines else []
    return panels


def _wanted(logs: Sequence[Log], options: PlotOptions) -> list[str]:
    return list(options.panels) or list(dict.fromkeys([*USUAL, *(name for log in logs for name in log.shown)]))


def _parts(panel: str, options: PlotOptions) -> tuple[str, ...]:
    return ("train",) if panel == "lr" else options.parts


def _figure(
    groups: Sequence[Group], panels: Sequence[Panel], axis: Axis, options: PlotOptions
) -> tuple["NotebookFigure", list[str]]:
    from matplotlib import rc_context

    from phalanx.observe.notebook_figure import NotebookFigure

    looks = LOOKS[options.style]
    rows, columns, size = figure_size(options.style, len(panels))
    labels = shown_labels([group.label for group in groups], options.style)
    chosen = {**settings(options.style), "font.family": labels.families}
    with rc_context(chosen):
        figure = NotebookFigure(settings=chosen, figsize=size, dpi=looks.dpi)
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        limits, parts = _x_limits(panels, options.xlim), panels_parts(panels)
        if parts == ["train"]:  # nothing to stand back behind
            looks = replace(looks, training=looks.validation, pale=1.0)
        for axes, panel in zip(grid, panels, strict=False):
            for number, part, line in panel.lines:
                _plot(axes, panel.name, part, line, run_look(number, options.style), number, looks, options)
            _finish(axes, panel, panel.title(parts), axis, limits, options, looks)
        for axes in grid[len(panels) :]:
            axes.remove()
        add_title(figure, labels, options.style)
        add_legend(figure, labels, parts, has_bands(panels), looks, options)
    return figure, labels.notes


def panels_parts(panels: Sequence[Panel]) -> list[str]:
    """Whether training, validation or both are in the figure. The learning rate is neither."""
    found = {part for panel in panels if panel.name != "lr" for _, part, _ in panel.lines}
    return [part for part in ("val", "train") if part in found]


def has_bands(panels: Sequence[Panel]) -> bool:
    return any(len(line.low) for panel in panels for _, _, line in panel.lines)


def _plot(
    axes: "Axes",
    panel: str,
    part: str,
    line: Line,
    look: dict[str, Any],
    number: int,
    looks: Looks,
    options: PlotOptions,
) -> None:
    """Validation is a thick line with marks; training a thin one, and pale; the learning rate a thin one."""
    plain = {"color": look["color"], "linestyle": look["linestyle"]}
    x, y = line.curve
    if len(line.low):
        axes.fill_between(x, line.low, line.high, color=look["color"], alpha=0.2 if part == "val" else 0.1, lw=0)
    if panel == "lr":
        axes.plot(x, y, **plain, lw=(looks.training + looks.validation) / 2)
    elif part == "val":
        axes.plot(x, y, **look, zorder=3, lw=looks.validation, ms=looks.marker, markevery=marked(len(x), number))
    elif options.smooth:
        axes.plot(*line.raw, **plain, lw=looks.training, alpha=0.2)
        axes.plot(x, y, **plain, lw=1.4 * looks.training, alpha=0.9)
    else:
        axes.plot(x, y, **plain, lw=looks.training, alpha=looks.pale, marker="." if len(x) == 1 else "")


def _finish(
    axes: "Axes",
    panel: Panel,
    title: str,
    axis: Axis,
    limits: tuple[float, float],
    options: PlotOptions,
    looks: Looks,
) -> None:
    if looks.titles:
        axes.set_title(title, parse_math=False)
    else:
        axes.set_ylabel(title, parse_math=False)
    axes.set_xlabel(_X_LABELS[axis])
    axes.set_xlim(*limits)
    if panel.name in options.log:
        _make_logarithmic(axes)
    elif options.xlim != (None, None) and (seen := _seen(panel, limits)):
        margin = 0.05 * (max(seen) - min(seen))
        axes.set_ylim(min(seen) - margin, max(seen) + margin) if margin else None
    low, high = options.ylim.get(panel.name, (None, None))
    axes.set_ylim(bottom=low, top=high)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _make_logarithmic(axes: "Axes") -> None:
    """With plain numbers: losses rarely span more than one power of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _seen(panel: Panel, limits: tuple[float, float]) -> list[float]:
    """The values inside the limits of the x axis."""
    return [
        value
        for _, _, line in panel.lines
        for values in (line.curve.y, line.low, line.high)
        for x, value in zip(line.curve.x, values, strict=False)
        if limits[0] <= x <= limits[1]
    ]


def _x_limits(panels: Sequence[Panel], asked: Limits) -> tuple[float, float]:
    """The same for all panels: from 0, if curves begin near it, to the end of the longest."""
    places = [x for panel in panels for _, _, line in panel.lines for x in (line.curve.x[0], line.curve.x[-1])]
    low, high = min(places), max(places)
    if 0 < low < 0.3 * high:
        low = 0.0
    margin = 0.02 * (high - low) or 0.5
    return (low - margin if asked[0] is None else asked[0], high + margin if asked[1] is None else asked[1])


def _notes(
    logs: Sequence[Log], groups: Sequence[Group], panels: Sequence[Panel], axis: Axis, options: PlotOptions
) -> list[str]:
    notes = [f"{log.label}: {note}" for log in logs for note in log.notes]
    wanted = [f"{part}/{name}" for name in _wanted(logs, options) for part in _parts(name, options)]
    for log in logs:
        lost = {name: count for name in wanted if name in log.series and (count := log.series[name].missing(axis))}
        notes += [f"{log.label}: {_lost(log, lost, axis)}"] if lost else []
    return [*notes, *(note for group in groups if (note := _short_seed(group, panels, axis)))]


def _lost(log: Log, lost: dict[str, int], axis: Axis) -> str:
    other = [one for one in AXES if one != axis and not any(log.series[name].missing(one) for name in lost)]
    shown = f"; --against {other[0]} shows them" if other else ""
    return f"{', '.join(lost)}: {sum(lost.values()):,} points have no {axis} in the log and are not drawn{shown}"


def _short_seed(group: Group, panels: Sequence[Panel], axis: Axis) -> str:
    """A mean ends where the shortest of its runs does."""
    for panel in panels:
        ends = {log.label: log.curve(f"val/{panel.name}", axis).x[-1:] for log in group.logs}
        found = {label: x[0] for label, x in ends.items() if x}
        if len(found) > 1 and min(found.values()) < 0.98 * max(found.values()):
            shortest = min(found, key=lambda label: found[label])
            return f"{group.label}: drawn up to {axis} {found[shortest]:g}, where {shortest} ends"
    return ""


def _nothing(logs: Sequence[Log], axis: Axis) -> NothingToDraw:
    others = [one for one in AXES if one != axis and any(s.on(one).x for log in logs for s in log.series.values())]
    if others:
        return NothingToDraw(
            f"nothing can be drawn against {axis}",
            why=f"the logs do not tell the {axis} of their numbers",
            remedy=f"--against {others[0]}",
        )
    return NothingToDraw(
        "there is nothing to draw yet", why="no step or evaluation has been reported", remedy="train a little longer"
    )
