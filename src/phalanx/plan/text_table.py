"""A table of the planner: for a terminal, and as text in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from phalanx.observe.tables import print_table


@dataclass(frozen=True)
class TextTable:
    """Lines of cells by title. Titles without any cell are left out."""

    lines: Sequence[Mapping[str, str]]
    words: Sequence[str] = ()  # columns that are aligned to the left; others have numbers

    @property
    def titles(self) -> list[str]:
        known = dict.fromkeys(title for line in self.lines for title in line)
        return [title for title in known if any(line.get(title) for line in self.lines)]

    @property
    def rows(self) -> list[list[str]]:
        return [[line.get(title, "") for title in self.titles] for line in self.lines]

    def print(self, console: Console) -> None:
        numbers = [title for title in self.titles if title not in self.words]
        print_table(console, self.titles, self.rows, numbers=numbers)

    def __str__(self) -> str:
        rows, left = [self.titles, *self.rows], [title in self.words for title in self.titles]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if words else cell.rjust(width)
                for cell, width, words in zip(row, widths, left, strict=True)
            ).rstrip()
            for row in rows
        )
