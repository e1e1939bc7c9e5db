"""The legend of curves, outside of the data: which line is which run, and what is training and what validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.observe.class_names import cut
from phalanx.observe.fonts import drawable, lettering
from phalanx.observe.plot_options import PlotOptions, Style
from phalanx.observe.plot_style import LOOKS, SANS, Looks, legend_columns, run_look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 60  # letters of a label


@dataclass(frozen=True)
class Labels:
    """The labels of the lines as fonts here can show them."""

    shown: list[str]
    families: list[str]
    notes: list[str]


def shown_labels(labels: Sequence[str], style: Style) -> Labels:
    """Labels that no font of outlines shows are numbered, and a note says which they are."""
    lines = [drawable(label) for label in labels]
    fonts = lettering([*lines, "…"])
    shown, notes = [], []
    for number, line in enumerate(lines, start=1):
        if fonts.way(line) == "text":
            shown.append(cut(line, LONGEST))
        else:
            shown.append(f"run {number}")
            notes.append(f"no font here shows {line!r}: it is run {number} in the figure")
    return Labels(shown, [*(_installed(SANS) if style == "paper" else ()), *fonts.families], notes)


def _installed(families: Sequence[str]) -> list[str]:
    """The first of these fonts that is there."""
    from matplotlib.font_manager import fontManager

    known = {entry.name for entry in fontManager.ttflist}
    return [family for family in families if family in known][:1]


def add_title(figure: "Figure", labels: Labels, style: Style) -> None:
    """The name of a single run on a screen. A paper has captions."""
    if len(labels.shown) == 1 and LOOKS[style].titles:
        figure.suptitle(labels.shown[0], parse_math=False)  # a folder's name may hold $


def add_legend(
    figure: "Figure", labels: Labels, parts: Sequence[str], bands: bool, looks: Looks, options: PlotOptions
) -> None:
    """Below the panels, in as many columns as fit. The figure becomes higher by the legend.

    If all is training or all is validation, the panels say so.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    if len(labels.shown) > 1:
        for number, label in enumerate(labels.shown):
            look = run_look(number, options.style)
            if "val" not in parts:
                look["marker"] = ""
            handles.append(Line2D([], [], **look, lw=looks.validation, ms=looks.marker + 0.5, label=label))
    single = run_look(0, options.style)["color"] if len(labels.shown) == 1 else "0.35"
    smooth = f", smoothed by {options.smooth:g}" if options.smooth else ""
    if len(parts) > 1:
        marks: Any = {"marker": "o", "ms": looks.marker, "lw": looks.validation}
        handles.append(Line2D([], [], color=single, **marks, label="validation"))
    if len(parts) > 1 or (smooth and "train" in parts):
        thin: Any = (
            {"alpha": looks.pale, "lw": looks.training} if not smooth else {"alpha": 0.9, "lw": 1.4 * looks.training}
        )
        handles.append(Line2D([], [], color=single, **thin, label=f"training{smooth}"))
    if bands:
        words = "mean ± standard deviation" if options.seeds == "std" else "mean, lowest to highest"
        handles.append(Patch(color=single, alpha=0.2, lw=0, label=words))
    if not handles:
        return
    texts = [str(handle.get_label()) for handle in handles]
    width, height = figure.get_size_inches()
    columns = legend_columns(texts, width, looks.small)
    rows = -(-len(handles) // columns)
    figure.set_size_inches(width, height + (1.65 * rows + 1.2) * looks.small / 72)
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.8, columnspacing=1.6
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
