"""The figure of a search: accuracy against each setting, a dot for each trial."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.config.grid import shown
from phalanx.config.ranges import Range, Space
from phalanx.observe.plot_style import LOOKS, settings
from phalanx.observe.sweep_results import Trial, best_trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


def search_figure(space: Space, trials: Sequence[Trial]) -> "Figure":
    """A panel for each setting. The darker a dot, the later its trial; a ring is around the best."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    measured = [trial for trial in trials if trial.mean is not None]
    columns = min(_COLUMNS, len(space))
    rows = -(-len(space) // columns)
    with mpl.rc_context(settings("screen")):
        figure = Figure(figsize=(1.2 + 3.4 * columns, 0.6 + 3.0 * rows), dpi=LOOKS["screen"].dpi, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for (key, one), axes in zip(space.items(), panels, strict=False):
            places = _places(axes, one, [trial.values[key] for trial in measured])
            _draw(axes, places, measured)
            axes.set_xlabel(key)
        for axes in panels[len(space) :]:
            axes.set_visible(False)
        name = "top-1" if not measured or measured[0].metric == "top1" else measured[0].metric
        panels[0].set_ylabel(f"best validation {name}")
        panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        best = best_trial(measured)
        if best is not None and best.mean is not None:
            title = f"best of {len(measured)}: {best.label}  ({100 * best.mean:.2f} %)"
            figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    return figure


def _places(axes: "Axes", one: "Range | list[Any]", values: Sequence[Any]) -> list[float]:
    if isinstance(one, Range):
        if one.log:
            axes.set_xscale("log")
        axes.set_xlim(_beyond(one))
        return [float(value) for value in values]
    names = [shown(value) for value in one]
    axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 8 else 0)
    axes.margins(x=0.15)
    return [float(one.index(value)) for value in values]


def _beyond(one: Range) -> tuple[float, float]:
    """The range with some space at both ends."""
    if one.log:
        part = (one.high / one.low) ** 0.05
        return one.low / part, one.high * part
    part = 0.05 * (one.high - one.low)
    return one.low - part, one.high + part


def _draw(axes: "Axes", places: Sequence[float], trials: Sequence[Trial]) -> None:
    shades = [0.25 + 0.75 * (number + 1) / len(trials) for number in range(len(trials))]
    scores = [trial.mean or 0.0 for trial in trials]
    axes.scatter(places, scores, s=30, color=[(0.0, 0.45, 0.7, shade) for shade in shades], linewidths=0)
    best = best_trial(list(trials))
    if best is not None and best.mean is not None:
        place = places[list(trials).index(best)]
        axes.plot([place], [best.mean], "o", ms=12, mfc="none", mec="black", mew=1.2, zorder=5)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
