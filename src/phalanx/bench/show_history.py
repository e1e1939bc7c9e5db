"""`phalanx bench history`: what was measured before, as a table and a picture."""

from pathlib import Path

from rich.console import Console

from phalanx.bench.history import Entry, entries, place
from phalanx.errors import UserError
from phalanx.observe.tables import print_table


def show_history(console: Console, benchmark: str | None, plot: Path | None) -> None:
    found = entries(benchmark)
    if not found:
        raise UserError(
            f"nothing is remembered of {f'bench {benchmark}' if benchmark else 'any benchmark'}",
            why=f"{place()} has no such line",
            remedy="run `phalanx bench comm` or another benchmark first",
        )
    rows = [
        [entry.time[:16].replace("T", " "), entry.benchmark, name, f"{value:.4g}", entry.versions.get("phalanx", "")]
        for entry in found
        for name, value in entry.figures.items()
    ]
    print_table(console, ("time", "benchmark", "figure", "value", "phalanx"), rows, numbers=("value",))
    if plot is not None:
        draw(found, plot)
        console.print(f"{plot}: {len({name for entry in found for name in entry.figures})} figures over time")


def draw(found: list[Entry], path: Path) -> None:
    """A small panel per figure, since their units differ."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = sorted({f"{entry.benchmark}: {name}" for entry in found for name in entry.figures})
    figure, axes = pyplot.subplots(len(names), 1, figsize=(8, 1.6 * len(names)), squeeze=False, sharex=True)
    for axis, name in zip(axes[:, 0], names, strict=True):
        benchmark, _, key = name.partition(": ")
        points = [(n, e.figures[key]) for n, e in enumerate(found) if e.benchmark == benchmark and key in e.figures]
        axis.plot(*zip(*points, strict=True), marker="o")
        axis.set_title(name, fontsize=9, loc="left")
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xticks(range(len(found)), [entry.time[:10] for entry in found], rotation=30, fontsize=8)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be written", why=str(error), remedy="a path that ends in .png, .svg or .pdf"
        ) from error
    finally:
        pyplot.close(figure)
