"""`phalanx runs`: the runs of a folder as a table. Everything is read from the runs' own files."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError
from phalanx.launch.agent import RECORD
from phalanx.launch.record import load_record
from phalanx.observe.results import RunResult, read_results
from phalanx.observe.tables import print_table
from phalanx.observe.time_left import duration
from phalanx.runs.events import EVENTS_FILE, read_events
from phalanx.runs.fold_paths import run_files
from phalanx.runs.lock import is_held

TITLES = ("run", "state", "recipe", "best", "last", "steps/s", "progress", "left", "hosts", "since")
STATES = ("running", "finished", "stopped", "lost", "damaged")


@dataclass(frozen=True)
class RunRow:
    """One run of the table."""

    name: str
    state: str
    since: float = 0.0  # when it began, in seconds since 1970
    result: RunResult | None = None
    hosts: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        return (self.result.recipe if self.result else None) or ""

    @property
    def best(self) -> float | None:
        return _first(self.result.best_map, self.result.best_top1) if self.result else None

    @property
    def speed(self) -> float | None:
        return self.result.steps_per_s if self.result else None

    @property
    def left_s(self) -> float | None:
        """Seconds until a running one ends, at its speed so far."""
        found = self.result
        if self.state != "running" or found is None or not found.steps_per_s or found.total_steps is None:
            return None
        return max(0, found.total_steps - (found.steps or 0)) / found.steps_per_s


_ORDERS: dict[str, Callable[[RunRow], Any]] = {
    "since": lambda row: -row.since,
    "name": lambda row: row.name,
    "state": lambda row: (STATES.index(row.state), -row.since),
    "recipe": lambda row: (row.recipe, -row.since),
    "best": lambda row: -(row.best if row.best is not None else -1.0),
    "speed": lambda row: -(row.speed or 0.0),
}


def show_runs(console: Console, folder: Path, sort: str, state: str | None, match: str | None) -> None:
    """Print the runs below a folder. `sort` is one of _ORDERS, `state` one of STATES, `match` a part of a name."""
    for given, known, flag in ((sort, tuple(_ORDERS), "--sort"), (state, STATES, "--state")):
        if given is not None and given not in known:
            raise UserError(f"{flag} cannot be {given!r}", why="unknown", remedy=f"one of {', '.join(known)}")
    rows = [row for row in read_runs(folder) if state in (None, row.state)]
    rows = [row for row in rows if match is None or match in row.name or match in row.recipe]
    if not rows:
        console.print(Text(f"no such run in {folder}"), soft_wrap=True)
        return
    rows.sort(key=_ORDERS[sort])
    numbers = ("best", "last", "steps/s", "progress", "left")
    print_table(console, TITLES, [_cells(row) for row in rows], numbers=numbers, asides=("since",))


def read_runs(folder: Path) -> list[RunRow]:
    """A row for each run in a folder, or for the run that the folder is. Damaged ones have a row, too."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder", why="there is nothing to list", remedy="phalanx runs FOLDER")
    if (folder / EVENTS_FILE).is_file():
        return [_row(folder, folder.resolve().name)]
    return [_row(path.parent, str(path.parent.relative_to(folder))) for path in run_files(folder, EVENTS_FILE)]


def _row(run: Path, name: str) -> RunRow:
    try:
        (result,) = read_results([run])
        records = read_events(run)
    except UserError:
        return RunRow(name, "damaged")
    state = result.state
    if state not in ("finished", "stopped") or is_held(run):
        state = "running" if is_held(run) else "lost"
    hosts = {str(record["host"]) for record in records if record["kind"] == "system"}
    if (run / RECORD).is_file():
        try:
            hosts = {role.host for role in load_record(run).roles}
        except UserError:
            state = "damaged"
    began = float(records[0]["t"]) if records else 0.0
    return RunRow(name, state, began, result, tuple(sorted(hosts)))


def _cells(row: RunRow) -> tuple[str, ...]:
    found = row.result or RunResult(row.name, "")
    done = (found.steps or 0) / found.total_steps if found.total_steps else None
    return (
        row.name,
        row.state,
        row.recipe,
        _percent(row.best),
        _percent(_first(found.final_map, found.final_top1)),
        "" if row.speed is None else f"{row.speed:.3g}",
        "" if done is None else f"{100 * done:.0f} %",
        "" if row.left_s is None else duration(row.left_s),
        ",".join(row.hosts[:3]) + (" …" if len(row.hosts) > 3 else ""),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(row.since)) if row.since else "",
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
