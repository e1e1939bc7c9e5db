"""The figure of a sweep: accuracy against the first key's values, a line for each combination of the others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.config.grid import shown
from phalanx.config.ranges import space_from_data
from phalanx.observe.plot_style import LOOKS, run_look, settings
from phalanx.observe.search_figure import search_figure
from phalanx.observe.sweep_results import Trial, best_trial
from phalanx.runs.sweep_file import SweepPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOG_RATIO = 8  # values that span more have a logarithmic axis


def figure_of(plan: SweepPlan, trials: Sequence[Trial]) -> "Figure":
    """The figure of a sweep, or of a search."""
    if plan.search is not None:
        return search_figure(space_from_data(plan.search["space"]), trials)
    return sweep_figure(plan.keys, trials)


def sweep_figure(keys: Sequence[str], trials: Sequence[Trial]) -> "Figure":
    """Means with their standard deviations, each seed as a dot, and a ring around the best."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    looks = LOOKS["screen"]
    with mpl.rc_context(settings("screen")):
        figure = Figure(figsize=(6.4, 4.2), dpi=looks.dpi, layout="constrained")
        axes = figure.add_subplot()
        first, others = (keys[0] if keys else ""), list(keys[1:])
        places = _places(axes, [trial.values.get(first, "default settings") for trial in trials])
        named = _numbers([trial.values.get(first) for trial in trials]) is None
        lines = list(dict.fromkeys(_label(trial, others) for trial in trials))
        for number, label in enumerate(lines):
            mine = [(place, t) for place, t in zip(places, trials, strict=True) if _label(t, others) == label]
            # Names stand apart from one another, so that error bars beside one another can be told apart.
            shift = 0.04 * (number - (len(lines) - 1) / 2) if named else 0.0
            _line(axes, sorted(mine, key=lambda pair: pair[0]), label, number, shift)
        _mark_best(axes, places, trials)
        axes.set_xlabel(first)
        seeds = ", mean ± std of seeds" if any(trial.std is not None for trial in trials) else ""
        axes.set_ylabel("best validation " + ("top-1" if trials[0].metric == "top1" else trials[0].metric) + seeds)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if others:
            title = ", ".join(others)
            axes.legend(title=title, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _numbers(values: Sequence[Any]) -> list[float] | None:
    """The values as numbers, if all are."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values]
    return None


def _places(axes: "Axes", values: Sequence[Any]) -> list[float]:
    """Where each value is on the x axis: a number at itself, anything else one after the other."""
    numbers = _numbers(values)
    if numbers is None:
        names = list(dict.fromkeys(shown(value) for value in values))
        axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 8 else 0)
        axes.margins(x=0.1)
        return [float(names.index(shown(value))) for value in values]
    ticks = sorted(set(numbers))
    if len(ticks) > 2 and ticks[0] > 0 and ticks[-1] / ticks[0] >= _LOG_RATIO:
        axes.set_xscale("log")
    if len(ticks) <= 10:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=0 if len(ticks) < 8 else 30)
        axes.set_xticks([], minor=True)
    return numbers


def _label(trial: Trial, keys: Sequence[str]) -> str:
    return ", ".join(shown(trial.values.get(key)) for key in keys)


def _line(axes: "Axes", mine: list[tuple[float, Trial]], label: str, number: int, shift: float) -> None:
    look = run_look(number, "screen")
    for place, trial in mine:
        if len(trial.scores) > 1:
            axes.plot([place + shift] * len(trial.scores), trial.scores, ".", color=look["color"], alpha=0.5, ms=7)
    measured = [(place + shift, trial) for place, trial in mine if trial.mean is not None]
    axes.errorbar(
        [place for place, _ in measured],
        [trial.mean or 0.0 for _, trial in measured],
        yerr=[trial.std or 0.0 for _, trial in measured] if any(trial.std for _, trial in measured) else None,
        label=label or None,
        capsize=3,
        linewidth=1.6,
        markersize=5,
        **look,
    )


def _mark_best(axes: "Axes", places: Sequence[float], trials: Sequence[Trial]) -> None:
    best = best_trial(list(trials))
    if best is None or best.mean is None:
        return
    place = places[list(trials).index(best)]
    axes.plot([place], [best.mean], "o", ms=13, mfc="none", mec="black", mew=1.2, zorder=5)
    spread = f" ± {100 * best.std:.2f}" if best.std is not None else ""
    axes.set_title(
        f"best: {best.label or 'default settings'}  ({100 * best.mean:.2f}{spread} %)", loc="left", fontsize=9
    )
