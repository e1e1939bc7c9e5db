"""`phalanx plot`: curves of runs and of other systems' logs in one figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.observe.plot_options import PlotOptions, parse_limits, parse_named
from phalanx.observe.plots import draw_curves
from phalanx.observe.tables import print_text


def plot_options(
    *,
    against: Any,
    panels: str | None,
    only: Any,
    seeds: Any,
    smooth: float,
    xlim: str | None,
    ylim: Sequence[str],
    log: Sequence[str],
    style: Any,
    tag: Sequence[str],
) -> PlotOptions:
    """The options as they are typed. Words are checked by `PlotOptions`."""
    limits = [parse_named(text, "--ylim", "top1=80:95") for text in ylim]
    return PlotOptions(
        axis=against,
        panels=[name.strip() for name in (panels or "").split(",") if name.strip()],
        only=only,
        seeds=seeds,
        smooth=smooth,
        xlim=parse_limits(xlim, "--xlim") if xlim is not None else (None, None),
        ylim={panel: parse_limits(limit, f"--ylim {panel}=") for panel, limit in limits},
        log=[name.strip() for text in log for name in text.split(",") if name.strip()],
        style=style,
        tags=dict(parse_named(text, "--tag", "val/top1=eval/acc") for text in tag),
    )


def plot_curves(console: Console, runs: Sequence[str], out: Path, options: PlotOptions) -> None:
    """Draw, and print what cannot be drawn."""
    for note in draw_curves(runs, out, options=options):
        print_text(console, f"note: {note}")
    console.print(Text(f"{out}: curves of {len(runs)} run{'s' * (len(runs) > 1)}"), soft_wrap=True)
