"""What a terminal shows of what was written to it."""

import re

CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[^\[]|[\r\n]|[^\x1b\r\n]+", re.DOTALL)


class Screen:
    """Lines as a terminal shows them, with those that have left it at the top. It knows what rich writes."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines, self._row, self._column = [""], 0, 0

    def feed(self, written: str) -> None:
        for found in CONTROL.finditer(written):
            if found[2] == "A":
                top = max(0, len(self.lines) - self.rows)
                self._row = max(top, self._row - int(found[1] or 1))
            elif found[2] == "K":
                self.lines[self._row] = ""
            elif found[0] == "\r":
                self._column = 0
            elif found[0] == "\n":
                self._down()
            elif not found[0].startswith("\x1b"):
                for each in found[0]:
                    self._put(each)

    def _put(self, character: str) -> None:
        if self._column == self.columns:  # the line goes on below
            self._down()
            self._column = 0
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")
