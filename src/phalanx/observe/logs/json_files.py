"""JSON: tensorpack's stats.json, and a JSON object a line for each epoch, as DeiT, MAE and ConvNeXt write log.txt."""

import json
from collections.abc import Mapping
from typing import Any

from phalanx.config.text import read_json
from phalanx.observe.curves import Log
from phalanx.observe.logs.names import number
from phalanx.observe.logs.rows import left_out, rows_log

TENSORPACK = "tensorpack's stats.json"
JSON_LINES = 'lines such as {"epoch": 0, "train_loss": …, "test_acc1": …}, as DeiT and MAE write'


def is_tensorpack(text: str) -> bool:
    return text.lstrip().startswith("[") and '"global_step"' in text[:100_000]


def is_json_lines(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith("{") and '"epoch"' in first and '"kind"' not in first


def read_tensorpack(text: str, label: str, tags: Mapping[str, str]) -> Log:
    """A list of dictionaries: epoch_num from 1, global_step, and every number that was monitored."""
    rows, cut = _list(text)
    log = rows_log(
        label,
        rows,
        [number(row.get("epoch_num")) for row in rows],
        steps=[number(row.get("global_step")) for row in rows],
        percent=False,
        tags=tags,
    )
    if cut:
        log.notes.append("the file is cut off: its last epoch is left out")
    return log


def _list(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The dictionaries of a list, and whether it is cut off: a process died while it wrote."""
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    rows: list[dict[str, Any]] = []
    while True:
        while place < len(text) and text[place] in ", \t\r\n":
            place += 1
        if text[place : place + 1] == "]":
            return rows, False
        try:
            row, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return rows, True
        if isinstance(row, dict):
            rows.append(row)


def read_json_lines(text: str, label: str, tags: Mapping[str, str]) -> Log:
    """Epochs are counted from 0. Accuracies are percent."""
    rows, damaged = [], 0
    for line in filter(str.strip, text.splitlines()):
        try:
            row = read_json(line)
            rows.append({**row, "epoch": float(row["epoch"])})
        except (ValueError, TypeError, KeyError):
            damaged += 1
    log = rows_log(label, rows, [row["epoch"] + 1 for row in rows], tags=tags)
    log.notes += left_out(damaged, "line")
    return log
