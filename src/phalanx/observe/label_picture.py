"""Draw the average precision of each class as bars, the best first."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from phalanx.observe.figures import save_figure
from phalanx.observe.label_results import LabelResult

MOST_BARS = 60  # of more classes, half the best and half the worst
LONGEST_NAME = 28


def draw_average_precision(labels: Sequence[LabelResult], samples: int, title: str, out: Path) -> None:
    """A bar for each class that some sample has. A mark shows what guessing would reach: the share of its positives."""
    from matplotlib.figure import Figure

    known = sorted((one for one in labels if one.positives), key=lambda one: -(one.average_precision or 0.0))
    left_out = len(known) - MOST_BARS
    shown = known if left_out <= 0 else [*known[: MOST_BARS // 2], *known[-MOST_BARS // 2 :]]
    figure = Figure(figsize=(7.5, 1.4 + 0.24 * max(3, len(shown))), layout="constrained", dpi=130)
    axes = figure.subplots()
    places = range(len(shown))
    axes.barh(places, [one.average_precision or 0.0 for one in shown], color="C0", height=0.75)
    guessed = [one.positives / max(1, samples) for one in shown]
    axes.plot(guessed, places, "|", color="black", ms=8, label="by guessing")
    names = [f"{_short(one.name)} ({one.positives:,})" for one in shown]
    axes.set_yticks(places, names, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="average precision")
    if left_out > 0:
        axes.axhline(MOST_BARS // 2 - 0.5, color="grey", ls=":")
        axes.set_ylabel(f"class (positives); {left_out:,} between the best and the worst are not shown", fontsize=9)
    else:
        axes.set_ylabel("class (positives)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    figure.suptitle(title, fontsize=10, parse_math=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks shows as boxes
        save_figure(figure, out)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
