"""The looks of curves: colours that colour-blind readers tell apart, dashes and markers for more runs than colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from phalanx.observe.plot_options import Style

# of Okabe and Ito, without the yellow that is hard to see on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
FEW_POINTS = 30  # so many are marked each; of more, some
MARKS = 8  # of those


@dataclass(frozen=True)
class Looks:
    """Sizes of a style: inches, and points."""

    panel: tuple[float, float]  # inches
    widths: tuple[float, float] | None  # inches of a figure of one panel and of several; None: as panels need
    letters: float
    small: float
    validation: float  # line widths
    training: float
    marker: float
    dpi: int
    titles: bool
    pale: float = 0.65  # opacity of training curves


LOOKS: dict[Style, Looks] = {
    "screen": Looks((4.0, 3.4), None, 10, 8.5, 1.6, 0.8, 3.5, 130, True),
    # widths of one and of two columns of most conferences and journals
    "paper": Looks((2.3, 1.75), (3.3, 6.9), 8, 7, 1.1, 0.5, 2.6, 300, False),
}
SANS = ("Arial", "Helvetica", "Liberation Sans", "Nimbus Sans", "DejaVu Sans")  # the first that is there


def settings(style: Style) -> Any:  # matplotlib's type for it lists every key
    """matplotlib's settings while a figure is drawn and written."""
    looks = LOOKS[style]
    common = {"font.size": looks.letters, "axes.titlesize": looks.letters, "axes.labelsize": looks.letters}
    small = dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), looks.small)
    if style == "screen":
        return {**common, **small, "axes.titlesize": looks.letters + 1}
    # publishers want fonts of outlines (TrueType) that can be searched and edited
    lines = {"axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "grid.linewidth": 0.4}
    return {**common, **small, **lines, "pdf.fonttype": 42, "ps.fonttype": 42, "savefig.dpi": looks.dpi}


def figure_size(style: Style, panels: int) -> tuple[int, int, tuple[float, float]]:
    """Rows and columns of panels, and the inches of the figure without its legend."""
    looks = LOOKS[style]
    rows = -(-panels // (4 if style == "screen" else 3))
    columns = -(-panels // rows)
    width = columns * looks.panel[0] if looks.widths is None else looks.widths[columns > 1]
    return rows, columns, (width, rows * looks.panel[1])


def run_look(number: int, style: Style) -> dict[str, Any]:
    """Colour, dashes and marker of a run: 28 differ in colour and dashes, and on paper neighbours in both."""
    dash = number if style == "paper" else number // len(COLOURS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[dash % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def marked(count: int, number: int) -> int | tuple[int, int]:
    """Which points of a curve are marked: all of few, else some, at other places for each run."""
    if count <= FEW_POINTS:
        return 1
    step = max(1, count // MARKS)
    return (number * step // 5) % step, step


def legend_columns(labels: Sequence[str], inches: float, points: float) -> int:
    """The most columns that fit below the panels. matplotlib fills them one after the other."""
    for columns in range(len(labels), 1, -1):
        long, more = divmod(len(labels), columns)
        ends = [n * long + min(n, more) for n in range(columns + 1)]
        widest = [max(map(len, labels[begin:end])) for begin, end in pairwise(ends)]
        if sum(points * (0.6 * letters + 4.5) for letters in widest) <= 72 * inches:
            return columns
    return 1
