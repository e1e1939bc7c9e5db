"""CSV files with a row for each epoch: Keras's CSVLogger, and timm's summary.csv."""

import csv
import io
from collections.abc import Mapping

from phalanx.observe.curves import Log
from phalanx.observe.logs.names import number
from phalanx.observe.logs.rows import left_out, rows_log

KERAS = "the file of Keras's CSVLogger"
TIMM = "timm's summary.csv"


def csv_kind(text: str) -> str | None:
    """Whose file it is, by its first line; None if it is another."""
    header = _header(text)
    if "epoch" not in header or len(header) < 2:
        return None
    return TIMM if any(name.startswith(("train_", "eval_")) for name in header) else KERAS


def read_csv(text: str, label: str, tags: Mapping[str, str]) -> Log:
    """The curves of either. Epochs are counted from 0, and a row is written at an epoch's end."""
    kind, header = csv_kind(text), _header(text)
    rows, damaged = [], 0
    for cells in list(csv.reader(io.StringIO(text), delimiter=_separator(text)))[1:]:
        row = dict(zip(header, cells, strict=False))
        if len(cells) == len(header) and number(row["epoch"]) is not None:
            rows.append(row)
        else:
            damaged += bool(cells)
    epochs, restarts = _epochs([float(row["epoch"]) for row in rows])
    log = rows_log(label, rows, epochs, percent=True if kind == TIMM else None, tags=tags)
    log.notes += left_out(damaged, "row")
    if restarts:
        log.notes.append("its epochs begin again, and are counted on")
    return log


def _epochs(written: list[float]) -> tuple[list[float], int]:
    """Epochs done at each row. A file to which another call of `fit` was appended begins again: it is counted on."""
    found: list[float] = []
    base, before, restarts = 0.0, -1.0, 0
    for epoch in written:
        if epoch <= before:
            base, restarts = found[-1], restarts + 1
        found.append(base + epoch + 1)
        before = epoch
    return found, restarts


def _header(text: str) -> list[str]:
    return [name.strip() for name in text.partition("\n")[0].split(_separator(text))]


def _separator(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)
