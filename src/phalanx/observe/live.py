"""A part of the terminal that is drawn anew in place, while lines are printed above it."""

import os
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

REFRESH_PER_S = 4
Draw = Callable[[int, int], Sequence[Text]]  # columns and rows of the terminal → lines


def is_live(console: Console) -> bool:
    """Whether a console can be drawn on: a dumb terminal only takes lines."""
    return console.is_terminal and not console.is_dumb_terminal


def is_ascii(console: Console) -> bool:
    """Whether a console cannot show the characters of bars. In the locale C, Python writes UTF-8 all the same."""
    return not console.encoding.lower().startswith("utf") or os.environ.get("LC_ALL") in ("C", "POSIX")


class LiveLines(Live):
    """Lines that `draw` makes, four times a second. A narrower terminal keeps none of the old ones."""

    def __init__(
        self, console: Console, draw: Draw, *, before: Callable[[], None] = lambda: None, keep: bool = False
    ) -> None:
        """`before` is called before each drawing, and may print. `keep`: the last lines stay when it stops."""
        self._draw, self._before = draw, before
        self._drawn, self._columns = [0], console.width
        super().__init__(
            console=console, get_renderable=self._lines, refresh_per_second=REFRESH_PER_S, transient=not keep
        )

    def _lines(self) -> RenderableType:
        columns, rows = self.console.size
        lines = list(self._draw(columns, rows))
        self._columns, self._drawn = columns, [line.cell_len for line in lines] or [0]
        return Group(*lines)

    def refresh(self) -> None:
        with self._lock:
            self._climb()
            self._before()
            super().refresh()

    def _climb(self) -> None:
        """In a narrower terminal, the lines on it have become more: erase as many as have been added."""
        columns = self.console.width
        if columns >= self._columns or not self.is_started:
            return
        added = sum(max(0, -(-cells // columns) - 1) for cells in self._drawn)
        erase = (ControlType.ERASE_IN_LINE, 2)
        self.console.control(Control(ControlType.CARRIAGE_RETURN, erase, *[(ControlType.CURSOR_UP, 1), erase] * added))
        self._columns = columns
