"""The report of a benchmark: tables on the terminal, as Markdown and JSON, and a line in the history."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.atomic import write_text_atomically
from phalanx.bench.history import Entry, append, make_entry
from phalanx.errors import UserError
from phalanx.observe.tables import print_line, print_table


@dataclass(frozen=True)
class Table:
    """Rows under a title. The first column names, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()


def tell(
    console: Console,
    benchmark: str,
    tables: Sequence[Table],
    figures: Mapping[str, float],
    *,
    subject: str = "",
    fewer_is_better: Collection[str] = (),
    versions: Mapping[str, str] | None = None,
    markdown: Path | None = None,
    json_file: Path | None = None,
    measured: Mapping[str, Any] | None = None,
) -> Entry:
    """Print the tables, write the requested files, and add the results to the history.

    Figures of the same `subject` are compared with one another later; `versions` are those of peers. `measured` is what
    `phalanx plan --from` reads in the JSON file (plan/measured.py has its fields).
    """
    for table in tables:
        console.print(Text(table.title, style="bold"))
        print_table(console, table.columns, table.rows, numbers=table.columns[1:])
        for note in table.notes:
            print_line(console, note)
    entry = make_entry(benchmark, figures, subject, fewer_is_better, versions or {})
    print_line(console, f"again: {entry.command}")
    if markdown is not None:
        _write(markdown, "\n\n".join(map(as_markdown, tables)) + f"\n\n{entry.command}\n")
    if json_file is not None:
        data = [{"title": t.title, "columns": t.columns, "rows": t.rows, "notes": t.notes} for t in tables]
        _write(
            json_file,
            json.dumps(
                entry.as_dict() | {"measured": dict(measured or {}), "tables": data}, indent=1, ensure_ascii=False
            )
            + "\n",
        )
    place = append(entry)
    if place is not None:
        print_line(console, f"remembered in {place}; `phalanx bench history` shows all")
    return entry


def as_markdown(table: Table) -> str:
    """A table as in docs/results.md."""
    rule = ["---", *("---:" for _ in table.columns[1:])]
    lines = [f"| {' | '.join(row)} |" for row in (table.columns, rule, *table.rows)]
    return "\n".join([f"**{table.title}**", "", *lines, *(f"\n{note}" for note in table.notes)])


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written", why=error.strerror or str(error), remedy="name another file"
        ) from error
