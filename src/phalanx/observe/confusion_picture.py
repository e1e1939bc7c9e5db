"""Draw the confusion matrix: counts in the cells for few classes, a table of the worst confusions for many."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phalanx.atomic import write_atomically, write_text_atomically
from phalanx.errors import UserError
from phalanx.observe.class_names import ClassNames, class_names, cut, legend_path, legend_text
from phalanx.observe.confusion import Answers
from phalanx.observe.name_labels import label_axis, write_name
from phalanx.observe.tables import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ANNOTATED = 20  # classes whose counts are written into the cells
MOST_NAMED = 120  # classes whose names fit along the axes
MOST_CELLS = 200  # along each side; more classes share cells
LONGEST_NAME = 24
MOST_PAIRS = 40  # lines of the table
TABLE = 5.2  # inches: its width
ROW = 0.2  # inches: the height of its lines


def draw_confusion(answers: Answers, title: str, out: Path) -> None:
    """Rows are the true classes. Colours follow a root of the share, so that rare confusions are visible.

    Where no font here shows the names of some classes, a file beside the picture says which number is which.
    """
    names = class_names(answers.classes, LONGEST_NAME)
    note = names.note(legend_path(out))
    figure = confusion_figure(answers, names, title, note)
    try:
        with write_atomically(out) as file:
            figure.savefig(file, format=out.suffix.lstrip("."), bbox_inches="tight")
        if note:
            write_text_atomically(legend_path(out), printable(legend_text(answers.classes)))
    except OSError as error:
        raise UserError(f"{out} cannot be written", why=error.strerror or str(error), remedy="another --out") from error


def confusion_figure(answers: Answers, names: ClassNames, title: str, note: str = "") -> "Figure":
    """The matrix, and beside it the table where there are more classes than can be annotated."""
    from matplotlib.figure import Figure

    count = len(answers.classes)
    listed = count > MOST_ANNOTATED
    side = _side(count)
    figure = Figure(figsize=(side + TABLE * listed, side), layout="constrained", dpi=130)
    axes, *beside = figure.subplots(1, 1 + listed, width_ratios=[side, TABLE][: 1 + listed], squeeze=False)[0]
    _draw_cells(axes, answers, names)
    axes.set_title(title, fontsize=11, parse_math=False)
    if beside:
        axes.set_anchor("N")  # the top of the table
        _tabulate(beside[0], answers, names, side)
    if note:
        figure.text(0.01, -0.01, note, fontsize=9, va="top", parse_math=False)
    return figure


def _side(count: int) -> float:
    """Inches of the matrix, with its names."""
    if count <= MOST_ANNOTATED:
        return 4.6 + 0.3 * count
    return max(10.0, 2.4 + 0.118 * count) if count <= MOST_NAMED else 11.0


def _draw_cells(axes: "Axes", answers: Answers, names: ClassNames) -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    group = -(-len(answers.classes) // MOST_CELLS)
    counts = answers.matrix(group)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.ma.masked_invalid(np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0))
    axes.set_facecolor("0.9")  # visible where the data has no sample of a class
    power = 0.5 if len(counts) <= MOST_ANNOTATED else 0.35
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(power, 0, 1), interpolation="nearest")
    middle = 0.5 if len(answers.classes) <= MOST_ANNOTATED else 0.8  # beside the matrix, whose top is that of a table
    percent = PercentFormatter(1.0, decimals=0)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, anchor=(0.0, middle), format=percent)
    bar.set_label("share of the true class", fontsize=9)
    bar.set_ticks([0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1])
    bar.ax.tick_params(labelsize=8)
    _label_axes(axes, names, group)
    if len(counts) <= MOST_ANNOTATED:
        for (row, column), number in np.ndenumerate(counts):
            if number:
                colour = "white" if shares[row, column] > 0.4 else "black"
                axes.text(column, row, f"{number:,}", ha="center", va="center", color=colour, fontsize=8)


def _label_axes(axes: "Axes", names: ClassNames, group: int) -> None:
    count = len(names.shown)
    grouped = f" ({group} neighbouring classes to a cell)" if group > 1 else ""
    numbers = " by number" if count > MOST_NAMED else ""
    axes.set(xlabel=f"answer{numbers}", ylabel=f"true class{numbers}{grouped}")
    if count > MOST_NAMED:
        step = next(step for step in (20, 50, 100, 200, 500, 1000, count) if count / step <= 12)
        for ticks in (axes.set_xticks, axes.set_yticks):
            ticks(np.arange(0, count, step) / group, [f"{number:,}" for number in range(0, count, step)], fontsize=8)
        return
    size = 9 if count <= MOST_ANNOTATED else max(6.0, 9.5 - count / 30)
    label_axis(axes, "x", names, size, upright=max(map(len, names.shown)) <= 2)
    label_axis(axes, "y", names, size)
    if count > MOST_ANNOTATED:  # lines from the names to the cells
        axes.set_xticks(np.arange(4.5, count - 0.5, 5), minor=True)
        axes.set_yticks(np.arange(4.5, count - 0.5, 5), minor=True)
        axes.grid(which="minor", color="0.85", lw=0.5)
        axes.tick_params(which="minor", length=0)


def _tabulate(axes: "Axes", answers: Answers, names: ClassNames, side: float) -> None:
    """The most frequent confusions, which are hard to find among thousands of cells."""
    axes.axis("off")
    samples = np.bincount(answers.labels, minlength=len(answers.classes))
    found = answers.confusions()
    lines = min(MOST_PAIRS, int((side - 1.2) / ROW))
    step = ROW / side
    axes.text(0, 1, "most frequent confusions", fontsize=11, transform=axes.transAxes)
    columns = (0.09, 0.19, 0.22, 0.61)  # where times and samples end, where the names begin
    for place, title, end in zip(
        columns, ("times", "of", "true class", "answer"), ("right", "right", "left", "left"), strict=True
    ):
        axes.text(place, 1 - 1.4 * step, title, fontsize=8, color="0.4", ha=end, va="center", transform=axes.transAxes)
    numbered = len(answers.classes) > MOST_NAMED
    for row, confusion in enumerate(found[:lines]):
        height = 1 - (row + 2.5) * step
        for place, number in zip(columns, (confusion.times, samples[confusion.label]), strict=False):
            axes.text(place, height, f"{number:,}", fontsize=8, ha="right", va="center", transform=axes.transAxes)
        for place, number in zip(columns[2:], (confusion.label, confusion.answer), strict=True):
            shown = names.shown[number]
            text = f"{number} {shown}" if numbered and number not in names.numbered else shown
            write_name(axes, names, (place, height), 8, cut(text, LONGEST_NAME))
    if len(found) > lines:
        rest = f"and {len(found) - lines:,} other pairs, in eval.json"
        axes.text(
            columns[2], 1 - (lines + 2.7) * step, rest, fontsize=8, color="0.4", va="center", transform=axes.transAxes
        )
