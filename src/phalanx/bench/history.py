"""The history of benchmark results, one JSON object a line, to detect regressions."""

import json
import os
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phalanx.runs.folder import machine, versions


@dataclass(frozen=True)
class Entry:
    """One run of one benchmark: results, time, machine and versions."""

    benchmark: str
    time: str
    command: str
    figures: dict[str, float]
    machine: dict[str, Any]
    versions: dict[str, str]
    subject: str = ""  # only results of the same subject can be compared
    fewer_is_better: list[str] = field(default_factory=list)  # those of the figures

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_entry(
    benchmark: str,
    figures: Mapping[str, float],
    subject: str = "",
    fewer_is_better: Collection[str] = (),
    peer_versions: Mapping[str, str] | None = None,
) -> Entry:
    return Entry(
        benchmark,
        time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        shlex.join(["phalanx", *sys.argv[1:]]),
        {name: float(value) for name, value in figures.items()},
        machine(),
        versions() | dict(peer_versions or {}),
        subject,
        [name for name in figures if name in fewer_is_better],
    )


def place() -> Path:
    """The file of the history, in the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "phalanx" / "bench.jsonl"


def append(entry: Entry) -> Path | None:
    """Add a line. Returns None if it cannot be written: a benchmark does not fail for that."""
    try:
        path = place()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry.as_dict(), ensure_ascii=False) + "\n")
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return path


def entries(benchmark: str | None = None) -> list[Entry]:
    """All entries, oldest first. Incomplete lines are skipped."""
    try:
        lines = place().read_text(encoding="utf-8").splitlines()
    except (OSError, RuntimeError):
        return []
    found = []
    for line in lines:
        try:
            entry = Entry(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if benchmark in (None, entry.benchmark):
            found.append(entry)
    return found
