"""`phalanx.plot`: curves of runs and of other systems' logs in one figure."""

import warnings
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.api.flags import PathText
from phalanx.observe.curves import Axis
from phalanx.observe.figures import refuse_other_endings, save_figure
from phalanx.observe.plot_options import Limits, Part, PlotOptions, Seeds, Style
from phalanx.observe.plots import curves_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(
    runs: PathText | Sequence[PathText] | Mapping[str, PathText | Sequence[PathText]],
    out: PathText | None = None,
    *,
    against: Axis | None = None,
    panels: Sequence[str] = (),
    only: Part | None = None,
    seeds: Seeds = "range",
    smooth: float = 0.0,
    xlim: Limits | None = None,
    ylim: Mapping[str, Limits] | None = None,
    log: Sequence[str] = (),
    style: Style = "screen",
    tag: Mapping[str, str] | None = None,
) -> "Figure":
    """Curves of runs and of other systems' logs in one figure, as `phalanx plot` draws them.

    `runs` is a run or a log, several of them, or a dictionary from names to them. With `out` the figure is also
    written. What cannot be drawn is a warning.

    >>> figure = phalanx.plot(["runs/digits"], smooth=0.6, ylim={"top1": (0, 100)})
    >>> [axes.get_title() for axes in figure.axes]
    ['top-1 accuracy, %', 'loss', 'learning rate']
    """
    if out is not None:
        refuse_other_endings(Path(out))
    options = PlotOptions(
        axis=against,
        panels=panels,
        only=only,
        seeds=seeds,
        smooth=smooth,
        xlim=xlim or (None, None),
        ylim=ylim or {},
        log=log,
        style=style,
        tags=tag or {},
    )
    drawing = curves_figure(_words(runs), options)
    for note in drawing.notes:
        warnings.warn(note, stacklevel=2)
    if out is not None:
        save_figure(drawing.figure, Path(out))
    return drawing.figure


def _words(runs: PathText | Sequence[PathText] | Mapping[str, PathText | Sequence[PathText]]) -> list[str | Path]:
    """As `phalanx plot` takes them: PATH or NAME=PATH."""
    if isinstance(runs, Mapping):
        return [f"{name}={fspath(path)}" for name, paths in runs.items() for path in _several(paths)]
    return [Path(path) for path in _several(runs)]


def _several(paths: PathText | Sequence[PathText]) -> Sequence[PathText]:
    return [paths] if isinstance(paths, str | PathLike) else paths
