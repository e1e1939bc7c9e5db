"""What `phalanx eval` reports where a sample may have several labels: average precision and F1 of each class."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.observe.label_picture import draw_average_precision
from phalanx.observe.label_results import LabelResult
from phalanx.observe.lines import percent
from phalanx.observe.tables import print_table, tab_separated
from phalanx.runs.folder import write_run_file

FILES = ("eval.json", "per_class.tsv", "average_precision.png")
_TITLES = ("class", "positives", "predicted", "AP", "precision", "recall", "F1")


def label_fields(one: LabelResult) -> dict[str, Any]:
    """A class in eval.json."""
    return {**asdict(one), "precision": one.precision, "recall": one.recall, "f1": one.f1}


def write_label_table(folder: Path, labels: Sequence[LabelResult]) -> None:
    """per_class.tsv."""
    lines = [_TITLES, *map(_cells, labels)]
    write_run_file(folder / "per_class.tsv", "".join(tab_separated(cells) + "\n" for cells in lines))


def draw_labels(folder: Path, labels: Sequence[LabelResult], samples: int, title: str) -> None:
    """average_precision.png."""
    draw_average_precision(labels, samples, title, folder / "average_precision.png")


def print_labels(console: Console, labels: Sequence[LabelResult], most: int) -> None:
    """A row for each class; of many, the worst."""
    shown = list(labels)
    if len(labels) > most:
        shown = sorted((one for one in labels if one.positives), key=lambda one: one.average_precision or 0.0)[:most]
        console.print(Text(f"the {len(shown)} worst of {len(labels):,} classes, the others in per_class.tsv:"))
    print_table(console, _TITLES, map(_cells, shown), numbers=_TITLES[1:])


def _cells(one: LabelResult) -> tuple[str, ...]:
    shares = (one.average_precision, one.precision, one.recall, one.f1)
    return (
        one.name,
        str(one.positives),
        str(one.predicted),
        *("-" if each is None else percent(each) for each in shares),
    )
