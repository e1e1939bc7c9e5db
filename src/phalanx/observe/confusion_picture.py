"""Draw the confusion matrix: counts in the cells for few classes, a list of the worst confusions for many."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phalanx.atomic import write_atomically
from phalanx.errors import UserError
from phalanx.observe.confusion import Answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ANNOTATED = 20  # classes whose counts are written into the cells
MOST_NAMED = 60  # classes whose names fit along the axes
MOST_CELLS = 200  # along each side; more classes share cells
LONGEST_NAME = 22
PAIRS_LISTED = 24


def draw_confusion(answers: Answers, title: str, out: Path) -> None:
    """Rows are the true classes. Colours follow a root of the share, so that rare confusions are visible."""
    from matplotlib.figure import Figure

    count = len(answers.classes)
    group = -(-count // MOST_CELLS)
    listed = count > MOST_ANNOTATED
    side = min(11.0, 4.6 + 0.3 * min(count, 24))
    figure = Figure(figsize=(side + 4.6 * listed, side), layout="constrained", dpi=130)
    axes, *beside = figure.subplots(1, 1 + listed, width_ratios=[side, 4.2][: 1 + listed], squeeze=False)[0]
    _draw_cells(axes, answers, group)
    axes.set_title(title, fontsize=11, parse_math=False)
    if beside:
        _list_confusions(beside[0], answers)
    try:
        with warnings.catch_warnings(), write_atomically(out) as file:
            warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks shows as boxes
            figure.savefig(file, format=out.suffix.lstrip("."), bbox_inches="tight")
    except OSError as error:
        raise UserError(f"{out} cannot be written", why=error.strerror or str(error), remedy="another --out") from error


def _draw_cells(axes: "Axes", answers: Answers, group: int) -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    counts = answers.matrix(group)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.ma.masked_invalid(np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0))
    axes.set_facecolor("0.9")  # visible where the data has no sample of a class
    power = 0.5 if len(counts) <= MOST_ANNOTATED else 0.35
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(power, 0, 1), interpolation="nearest")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, format=PercentFormatter(1.0, decimals=0))
    bar.set_label("share of the true class", fontsize=9)
    bar.set_ticks([0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1])
    bar.ax.tick_params(labelsize=8)
    _label_axes(axes, answers.classes, group)
    if len(counts) <= MOST_ANNOTATED:
        for (row, column), number in np.ndenumerate(counts):
            if number:
                colour = "white" if shares[row, column] > 0.4 else "black"
                axes.text(column, row, f"{number:,}", ha="center", va="center", color=colour, fontsize=8)


def _label_axes(axes: "Axes", classes: list[str], group: int) -> None:
    grouped = f" ({group} neighbouring classes to a cell)" if group > 1 else ""
    axes.set(xlabel="answer", ylabel=f"true class{grouped}")
    if len(classes) > MOST_NAMED:
        places = axes.get_yticks()
        kept = [int(place) for place in places if place == int(place) and 0 <= place < len(classes) / group]
        for side in (axes.set_xticks, axes.set_yticks):
            side(kept, [str(place * group) for place in kept], fontsize=8)
        return
    names = [_short(name) for name in classes]
    size = 9 if len(names) <= MOST_ANNOTATED else max(4.5, 11 - len(names) / 9)
    short = max(map(len, names)) <= 2
    axes.set_xticks(range(len(names)), names, rotation=0 if short else 90, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)


def _list_confusions(axes: "Axes", answers: Answers) -> None:
    """List the most frequent confusions, which are hard to find among thousands of cells."""
    axes.axis("off")
    axes.text(0, 1, "most frequent confusions", fontsize=11, transform=axes.transAxes)
    samples = np.bincount(answers.labels, minlength=len(answers.classes))
    for place, confusion in enumerate(answers.confusions()[:PAIRS_LISTED]):
        label, answer = answers.classes[confusion.label], answers.classes[confusion.answer]
        text = f"{confusion.times:,} of {samples[confusion.label]:,}  {_short(label)} → {_short(answer)}"
        axes.text(0, 1 - (place + 1) / (PAIRS_LISTED + 1), text, fontsize=8, parse_math=False, transform=axes.transAxes)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
