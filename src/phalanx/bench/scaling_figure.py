"""The figure of scaling: speed by workers with the ideal line, and the parts of a step's time."""

from pathlib import Path
from typing import Any

from phalanx.bench.scaling_runs import PARTS
from phalanx.bench.scaling_table import Results, Row, make_rows
from phalanx.observe.figures import save_figure

COLOURS = {"data": "C2", "compute": "C0", "exchange": "C3", "update": "C1", "between steps": "0.7"}


def draw_scaling(results: Results, subject: str, out: Path) -> None:
    """A column for weak and one for strong scaling. The file's ending chooses PNG, SVG or PDF."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(results), 7), layout="constrained", dpi=130)
    panels = figure.subplots(2, len(results), squeeze=False)
    for column, (kind, by_workers) in enumerate(results.items()):
        rows = make_rows(by_workers)
        _speeds(panels[0, column], rows)
        panels[0, column].set(title=f"{kind} scaling: images/s", xlabel="workers")
        _times(panels[1, column], rows)
        panels[1, column].set(title=f"{kind} scaling: ms of a step", xlabel="workers")
    for axes in panels.flat:
        axes.grid(alpha=0.3, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].legend(fontsize=8)
    figure.legend(*panels[1, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=6)
    figure.suptitle(subject, parse_math=False)
    save_figure(figure, out)


def _speeds(axes: Any, rows: list[Row]) -> None:
    workers = [row.workers for row in rows]
    speeds = [row.images_per_s for row in rows]
    below = [row.images_per_s - row.lowest for row in rows]
    above = [row.highest - row.images_per_s for row in rows]
    axes.plot(workers, [count * speeds[0] for count in workers], "--", color="0.6", label="N × one worker")
    axes.plot(workers, [row.independent.images_per_s for row in rows], "s-", ms=4, label="N independent trainers")
    axes.errorbar(workers, speeds, yerr=[below, above], fmt="o-", capsize=3, label="N workers")
    axes.set_xticks(workers)
    axes.set_ylim(bottom=0)


def _times(axes: Any, rows: list[Row]) -> None:
    """Stacked bars, the job's on the left and the independent trainers' on the right, paler."""
    for side, runs, strength in ((-0.2, [row.job for row in rows], 1.0), (0.2, [row.independent for row in rows], 0.5)):
        places = [number + side for number in range(len(rows))]
        bottom = [0.0] * len(rows)
        for name in (*PARTS, "between steps"):
            heights = [1e3 * (run.parts[name] if name in PARTS else run.other_s) for run in runs]
            label = name if side < 0 else None
            axes.bar(places, heights, 0.36, bottom, color=COLOURS[name], alpha=strength, label=label)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(rows)), [str(row.workers) for row in rows])
    axes.bar([0], [0], color="white", label="(paler, on the right: independent trainers)")
