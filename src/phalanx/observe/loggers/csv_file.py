"""RUN/log.csv: a row for each event with numbers, and a column for each name. Any spreadsheet reads it."""

import csv
from collections.abc import Mapping
from pathlib import Path

from phalanx.atomic import write_text_atomically
from phalanx.observe.loggers.base import LoggedRun

CSV_FILE = "log.csv"
_FIRST = ["step", "time"]


class CsvLogger:
    """Appends rows. A name that was not there before makes the file be written anew, with one more column."""

    def __init__(self) -> None:
        self._path = Path()
        self._columns: list[str] = []

    def begin(self, run: LoggedRun) -> None:
        self._path = run.folder / CSV_FILE
        rows = self._rows()
        self._columns = list(rows[0]) if rows else list(_FIRST)
        self._write(rows)

    def rewind(self, step: int) -> None:
        self._write([row for row in self._rows() if int(row["step"]) <= step])

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        new = [name for name in values if name not in self._columns]
        if new:
            rows = self._rows()
            self._columns += new
            self._write(rows)
        row = {"step": step, "time": f"{time_s:.3f}", **{name: f"{value:.8g}" for name, value in values.items()}}
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)

    def finish(self, *, failed: bool) -> None:
        """Every row is in the file already."""

    def _rows(self) -> list[dict[str, str]]:
        if not self._path.is_file():
            return []
        with self._path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def _write(self, rows: list[dict[str, str]]) -> None:
        from io import StringIO

        text = StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text_atomically(self._path, text.getvalue())
