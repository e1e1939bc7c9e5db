"""The table as Markdown: a row for each cell, and at the end how many are as promised."""

import re
from collections.abc import Iterable

from benchmarks.chaos.run_cell import Measured

HEAD = [
    "| fault | mode | restarts | what follows | noticed after, s | ended or going on after, s | steps lost "
    "| samples lost or repeated | top-1, undisturbed | what the message named |",
    "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- | --- |",
]
_LONGEST = 160


def row(cell: Measured) -> str:
    mark = " ✗ " + "; ".join(cell.deviations) if cell.deviations else ""
    away = f" ({cell.samples_away} while a worker was away)" if cell.samples_away else ""
    columns = [
        *(cell.fault, cell.mode, str(cell.restarts)),
        cell.outcome + mark,
        *(_seconds(cell.noticed_s), _seconds(cell.settled_s)),
        "–" if cell.steps_lost is None else str(cell.steps_lost),
        "–" if cell.samples_wrong is None else f"{cell.samples_wrong}{away}",
        _accuracy(cell),
        shortened(cell.named or cell.said),
    ]
    return f"| {' | '.join(_escaped(one) for one in columns)} |"


def missing_row(fault: str, mode: str, why: str) -> str:
    return f"| {fault} | {mode} | | does not exist: {why} | | | | | | |"


def summary(cells: Iterable[Measured]) -> str:
    cells = list(cells)
    wrong = [cell for cell in cells if cell.deviations]
    said = [f"{len(cells)} cells, {len(wrong)} of them ✗"]
    said += [f"✗ {cell.key}: {'; '.join(cell.deviations)}" for cell in wrong]
    return "\n".join(said)


def shortened(said: str) -> str:
    """Without what only this command makes long: temporary folders, ssh's configuration."""
    said = re.sub(r"/\S*/(phalanx-chaos-\w+|phalanx-lab-\w+)/(own/)?", "", said)
    said = re.sub(r"ssh -F \S+", "ssh", said).strip()
    return said if len(said) <= _LONGEST else said[:_LONGEST] + " …"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _accuracy(cell: Measured) -> str:
    if cell.accuracy is None:
        return "–"
    same = " (same weights)" if cell.same_weights else ""
    base = "" if cell.undisturbed is None else f", {100 * cell.undisturbed:.1f}"
    return f"{100 * cell.accuracy:.1f}{base}{same}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " / ")
