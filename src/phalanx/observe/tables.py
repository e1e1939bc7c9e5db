"""Rows, tables and lines for a person: columns on a terminal, plain lines anywhere else."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

# All but tab and line break. A terminal carries them out: they may move, hide or fake what it shows.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_rows(console: Console, rows: Mapping[str, str], *, bold: Collection[str] = ()) -> None:
    """A name and a value per row; on a terminal, the values of the rows in `bold` stand out."""
    if not console.is_terminal:
        for name, value in rows.items():
            print_line(console, f"{name}: {value}")
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(Text(name, style="cyan"), Text(printable(value), style="bold" if name in bold else ""))
    console.print(table)


def print_table(
    console: Console,
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    asides: Collection[str] = (),
) -> None:
    """A table with a line of titles. Columns of `numbers` are aligned to the right, those of `asides` are dim."""
    if not console.is_terminal:
        for row in (titles, *rows):
            print_line(console, tab_separated(row))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(
            title,
            justify="right" if title in numbers else "left",
            style="dim" if title in asides else "",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def tab_separated(cells: Sequence[str]) -> str:
    """One line of a .tsv file: tabs and line breaks inside a cell become spaces."""
    return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells)


def print_line(console: Console, text: str) -> None:
    """Print a line as it is. rich would wrap it and replace its tabs."""
    if not console.quiet:
        console.file.write(printable(text) + "\n")


def print_text(console: Console, text: str, style: str = "") -> None:
    """Print text that may hold names from data or from a run's folder."""
    console.print(Text(printable(text), style=style), soft_wrap=True)


def printable(text: str) -> str:
    """The text, with control characters and bytes that are not UTF-8 replaced: a file's name may hold any."""
    return _CONTROL.sub("\ufffd", as_utf8(text))


def as_utf8(text: str) -> str:
    """The text, with bytes that are not UTF-8 replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
