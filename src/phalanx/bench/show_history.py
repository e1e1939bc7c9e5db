"""`phalanx bench history`: earlier results as a table and a figure, with regressions."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.bench.history import Entry, entries, place
from phalanx.errors import UserError
from phalanx.observe.figures import refuse_other_endings, save_figure
from phalanx.observe.tables import print_line, print_table

COMPARED = 5  # earlier values that a new one is compared with
TOLERANCE = 0.05  # of their median: machines are noisy


@dataclass(frozen=True)
class Series:
    """One result of one benchmark on one machine: comparable values, oldest first."""

    benchmark: str
    subject: str
    name: str
    host: str
    fewer_is_better: bool
    times: list[str]
    values: list[float]
    versions: list[str]

    @property
    def title(self) -> str:
        return ", ".join(part for part in (f"bench {self.benchmark}", self.subject, self.name) if part)

    def change(self, at: int) -> float | None:
        """How a value differs from the median of those before it: 0.1 is ten percent more."""
        before = self.values[max(0, at - COMPARED) : at]
        usual = statistics.median(before) if before else 0.0
        return self.values[at] / usual - 1 if usual else None

    def is_worse(self, at: int) -> bool:
        """Whether a value is worse than each of those before it, and clearly worse than their median."""
        before, change = self.values[max(0, at - COMPARED) : at], self.change(at)
        if change is None:
            return False
        if self.fewer_is_better:
            return change > TOLERANCE and self.values[at] > max(before)
        return change < -TOLERANCE and self.values[at] < min(before)


def show_history(console: Console, benchmark: str | None, plot: Path | None) -> None:
    """Show all series, and a line for each regression."""
    if plot is not None:
        refuse_other_endings(plot)
    found = series_of(entries(benchmark))
    if not found:
        raise UserError(
            f"nothing is remembered of {f'bench {benchmark}' if benchmark else 'any benchmark'}",
            why=f"{place()} has no such line",
            remedy="run `phalanx bench comm` or another benchmark first",
        )
    titles = ("time", "benchmark", "of", "figure", "value", "change", "phalanx", "")
    rows = [row for series in found for row in _rows(series)]
    print_table(console, titles, rows, numbers=("value", "change"))
    for series in found:
        last = len(series.values) - 1
        if series.is_worse(last):
            count = min(COMPARED, last)
            change = 100 * (series.change(last) or 0.0)
            text = f"{series.title}: {change:+.0f} % against the median of the {count} before it, on {series.host}"
            console.print(Text(f"worse: {text}", style="red"), soft_wrap=True)
    if plot is not None:
        draw(found, plot)
        print_line(console, f"{plot}: {len(found)} figures over time")


def series_of(found: Sequence[Entry]) -> list[Series]:
    """The series of all results. Each machine and subject has its own."""
    made: dict[tuple[str, str, str, str], Series] = {}
    for entry in found:
        host = f"{entry.machine.get('host', '')} ({entry.machine.get('cpu', '')})"
        for name, value in entry.figures.items():
            key = (entry.benchmark, entry.subject, name, host)
            series = made.setdefault(key, Series(*key, name in entry.fewer_is_better, [], [], []))
            series.times.append(entry.time)
            series.values.append(value)
            series.versions.append(entry.versions.get("phalanx", ""))
    return [made[key] for key in sorted(made)]


def _rows(series: Series) -> list[list[str]]:
    rows = []
    for at, (time, value, version) in enumerate(zip(series.times, series.values, series.versions, strict=True)):
        change = series.change(at)
        shown = "" if change is None else f"{100 * change:+.0f} %"
        mark = "worse" if series.is_worse(at) else ""
        when = time[:16].replace("T", " ")
        rows.append([when, series.benchmark, series.subject, series.name, f"{value:.4g}", shown, version, mark])
    return rows


def draw(found: Sequence[Series], path: Path) -> None:
    """A panel per series, since units differ. Regressions are red."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.7 * len(found) + 0.4), layout="constrained", dpi=130)
    for axes, series in zip(figure.subplots(len(found), 1, squeeze=False)[:, 0], found, strict=True):
        places = range(len(series.values))
        axes.plot(places, series.values, marker="o", ms=4)
        worse = [at for at in places if series.is_worse(at)]
        axes.plot(worse, [series.values[at] for at in worse], "o", color="red", ms=8)
        axes.set_title(
            f"{series.title} ({'less' if series.fewer_is_better else 'more'} is better)",
            fontsize=8,
            loc="left",
            parse_math=False,
        )
        axes.set_xticks(places, [time[5:16].replace("T", " ") for time in series.times], rotation=20, fontsize=7)
        axes.tick_params(axis="y", labelsize=7)
        axes.set_ylim(0, 1.15 * max(series.values) or 1.0)
        axes.margins(x=0.05)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
