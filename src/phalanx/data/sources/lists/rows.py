"""The rows of a text list: lines `path label`, or a table (CSV, TSV) of any separator; read in chunks."""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO

from phalanx.errors import UserError

Row = list[str]

# Without a separator: tabs, if a line has any; otherwise the last blank, so that a path may contain blanks.
LINES = ""
BLANKS = " "  # every run of blanks
WHOLE_LINES = "\n"
TABLES = (",", ";", "\t", "|")
ROWS_AT_ONCE = 16_384
FIRST_ROWS = 1000  # what decides how a list is read
_LINES_TRIED = 50
_UTF16 = ("\xff\xfe", "\xfe\xff")


@dataclass(frozen=True)
class Rows:
    """The rows of a list: cells as they are written, without empty rows and comments."""

    path: Path
    separator: str
    encoding: str = "utf-8-sig"

    def chunks(self) -> Iterator[list[Row]]:
        with _opened(self.path, self.encoding) as lines:
            rows = self._cells(lines)
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                yield chunk

    def first(self) -> list[Row]:
        """The rows that decide how a list is read."""
        with _opened(self.path, self.encoding) as lines:
            rows = list(islice(self._cells(lines), FIRST_ROWS))
        for number, row in enumerate(rows):
            self.refuse_zero_bytes(row, number)
        return rows

    def where(self, row: int) -> str:
        """`FILE, line N` of a row, for errors. It reads the file again, so that reading need not count lines."""
        with _opened(self.path, self.encoding) as lines:
            counted = _Counted(lines)
            for _ in islice(self._cells(counted), row + 1):
                pass
            return f"{self.path}, line {counted.count}"

    def refuse_zero_bytes(self, cells: Iterable[str], row: int) -> None:
        """Refuse a binary file, by cells of a row."""
        if any("\0" in cell for cell in cells):
            raise UserError(
                f"{self.path} is not a text file",
                why=f"{self.where(row)} contains a zero byte",
                remedy="give a list of lines `path label` or a CSV table; name another format as FORMAT:PATH",
            )

    def _cells(self, lines: Iterable[str]) -> Iterator[Row]:
        if self.separator in TABLES:
            return _table(self.path, lines, self.separator)
        return _each_line(lines, self.separator)


def _each_line(lines: Iterable[str], separator: str) -> Iterator[Row]:
    for line in lines:
        line = line.strip()
        if not line or line[0] == "#":
            continue
        if separator == LINES:
            yield line.split("\t") if "\t" in line else line.rsplit(None, 1)
        else:
            yield line.split() if separator == BLANKS else [line]


def _table(path: Path, lines: Iterable[str], separator: str) -> Iterator[Row]:
    # A name may begin with #, and a table rarely has comments: they are only expected before its first row.
    reader = csv.reader(dropwhile(_is_comment, lines), delimiter=separator, strict=True, skipinitialspace=True)
    try:
        yield from filter(any, reader)
    except csv.Error as error:
        raise UserError(
            f"{path} cannot be read as a table",
            why=f"near line {reader.line_num}: {error}",
            remedy="check the quotes there: a cell that begins with one has to end with one",
        ) from error


def find_rows(path: Path) -> Rows:
    """The rows of a list, separated as its first lines show."""
    path = path.expanduser()
    with _opened(path, "latin-1") as file:
        encoding = "utf-16" if file.read(2) in _UTF16 else "utf-8-sig"
    lines = [row[0] for row in Rows(path, WHOLE_LINES, encoding).first()[:_LINES_TRIED]]
    return Rows(path, _separator(path, lines), encoding)


def _separator(path: Path, lines: list[str]) -> str:
    suffix = path.suffix.lower()
    tables = ("\t", ",", ";", "|") if suffix == ".tsv" else TABLES
    widths = {separator: _widths(lines, separator) for separator in tables}
    regular = [separator for separator in tables if min(widths[separator], default=1) > 1]
    regular.sort(key=lambda separator: len(set(widths[separator])) > 1)  # rows of the same length first
    as_lines = all(_looks_like_a_line(line) for line in lines)
    if suffix in (".csv", ".tsv"):
        return regular[0] if regular else LINES if lines and as_lines else tables[0]
    return LINES if as_lines or not regular or regular[0] == "\t" else regular[0]


def _looks_like_a_line(line: str) -> bool:
    """Whether a blank or tab separates two cells, and not the comma before it."""
    cells = line.split("\t") if "\t" in line else line.rsplit(maxsplit=1)
    return len(cells) > 1 and not cells[0].endswith((",", ";"))


def _widths(lines: list[str], separator: str) -> list[int]:
    """Cells in each of the first lines. The last row may be cut, which is no error here."""
    try:
        return [len(row) for row in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
    except csv.Error:
        return []


class _Counted:
    """Lines, and how many of them were taken."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self.count = lines, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.count += 1
            yield line


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[IO[str]]:
    """The text of a file. What goes wrong while it is read becomes a UserError."""
    errors = "strict" if encoding == "utf-16" else "surrogateescape"
    try:
        with path.open(encoding=encoding, errors=errors, newline="") as file:
            yield file
    except OSError as error:
        raise UserError(
            f"{path} cannot be read", why=error.strerror or str(error), remedy="check the path and its permissions"
        ) from error
    except UnicodeError as error:
        raise UserError(f"{path} is not a text file", why=str(error), remedy="save it as UTF-8") from error


def _is_comment(line: str) -> bool:
    return line.startswith("#")
