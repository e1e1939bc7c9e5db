"""`phalanx compare A B C …`: a table of results, for a terminal, a page or a spreadsheet."""

import csv
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Literal

from rich.console import Console

from phalanx.errors import UserError
from phalanx.observe.lines import percent
from phalanx.observe.results import RunResult, read_results
from phalanx.observe.tables import print_line, print_table, printable
from phalanx.runs.folder import write_run_file

Format = Literal["text", "markdown", "csv"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "csv")
_ENDINGS: dict[str, Format] = {".txt": "text", ".md": "markdown", ".csv": "csv"}
_WORDS = ("run", "recipe", "model", "updates", "precision", "remarks")


def table_format(form: str | None, out: Path | None) -> Format | None:
    """The named format, or that of the file's ending; None if no table is requested."""
    if form is None:
        return _ENDINGS.get(out.suffix.lower()) if out is not None else None
    chosen = next((known for known in FORMATS if known == form), None)
    if chosen is None:
        raise UserError(f"there is no format {form!r}", why="unknown name", remedy=f"one of {', '.join(FORMATS)}")
    return chosen


def show_results(console: Console, runs: Sequence[Path], form: Format | None, out: Path | None) -> None:
    """The table on the screen, or in a file."""
    if form is None and out is not None:
        raise UserError(
            f"{out} has no known table format",
            why=f"its ending is none of {', '.join(_ENDINGS)}",
            remedy="name it with --format; phalanx plot draws the curves of many runs in one figure",
        )
    form = form or "text"
    rows = read_results(runs)
    if out is None and form == "text":
        titles, cells = _table(rows)
        print_table(console, titles, cells, numbers=[title for title in titles if title not in _WORDS])
        return
    text = {"text": _text, "markdown": _markdown, "csv": _csv}[form](rows)
    if out is None:
        sys.stdout.write(text)
    else:
        write_run_file(out, text)
        print_line(console, f"{out}: a table of {len(rows)} run{'s' * (len(rows) > 1)}")


def _table(rows: Sequence[RunResult]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells. Empty columns are left out."""
    ks = {row.k for row in rows if row.k is not None and row.k > 1}
    k = str(ks.pop()) if len(ks) == 1 else "k"
    columns: dict[str, list[str | None]] = {
        "run": [row.run for row in rows],
        "recipe": [row.recipe for row in rows],
        "model": [row.model for row in rows],
        "best top-1": [_share(row.best_top1) for row in rows],
        "final top-1": [_share(row.final_top1) for row in rows],
        f"best top-{k}": [_topk(row, row.best_topk, named=k == "k") for row in rows],
        f"final top-{k}": [_topk(row, row.final_topk, named=k == "k") for row in rows],
        "best mAP": [_share(row.best_map) for row in rows],
        "final mAP": [_share(row.final_map) for row in rows],
        "epochs": [None if row.epochs is None else f"{row.epochs:.4g}" for row in rows],
        "steps/s": [_speed(row.steps_per_s) for row in rows],
        "images/s": [_speed(row.images_per_s) for row in rows],
        "time": [_clock(row.wall_s) for row in rows],
        "workers": [None if row.workers is None else str(row.workers) for row in rows],
        "servers": [str(row.servers) if row.servers else None for row in rows],
        "updates": [_updates(row) for row in rows],
        "precision": [row.precision for row in rows],
        "remarks": ["; ".join(row.remarks) or None for row in rows],
    }
    filled = {title: cells for title, cells in columns.items() if any(cells)}
    return list(filled), [[cell or "-" for cell in cells] for cells in zip(*filled.values(), strict=True)]


def _share(share: float | None) -> str | None:
    return None if share is None else percent(share)


def _topk(row: RunResult, share: float | None, *, named: bool) -> str | None:
    if share is None or row.k is None or row.k < 2:
        return None
    return f"{percent(share)} (top-{row.k})" if named else percent(share)


def _speed(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:,.1f}" if per_s >= 10 else f"{per_s:.3g}"


def _clock(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return (
        f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 3600:.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"
    )


def _updates(row: RunResult) -> str | None:
    return " ".join(part for part in (row.update_method, row.mode, row.compress) if part) or None


def _text(rows: Sequence[RunResult]) -> str:
    titles, cells = _table(rows)
    said = io.StringIO()
    print_table(Console(file=said, force_terminal=False), titles, cells)
    return said.getvalue()


def _markdown(rows: Sequence[RunResult]) -> str:
    titles, cells = _table(rows)
    rule = ["---" if title in _WORDS else "---:" for title in titles]
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, rule, *(map(_plain, row) for row in cells)))


def _plain(cell: str) -> str:
    """Escape a text for Markdown tables."""
    return re.sub(r"([\\`*_\[\]<>|~])", r"\\\1", " ".join(printable(cell).split()))


def _csv(rows: Sequence[RunResult]) -> str:
    """Every field of every row, with unrounded numbers."""
    said = io.StringIO()
    writer = csv.DictWriter(said, [field.name for field in fields(RunResult)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**asdict(row), "remarks": "; ".join(row.remarks)})
    return printable(said.getvalue())
