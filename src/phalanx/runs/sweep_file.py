"""sweep.json: the runs of a sweep, and what they have found. docs/run-folder.md documents it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.folder import write_run_file

SWEEP_FILE = "sweep.json"


@dataclass
class SweepRun:
    """One run of a sweep: a combination of values with one seed."""

    trial: int  # the number of the combination, from 1
    values: dict[str, Any]  # by setting
    seed: int
    error: str = ""  # why it failed, the last time that it was tried

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"trial-{self.trial}-seed-{self.seed}"


@dataclass
class SweepPlan:
    """All runs of a sweep, and how it was started."""

    command: str
    keys: list[str]
    runs: list[SweepRun] = field(default_factory=list)
    init_from: str | None = None
    search: dict[str, Any] | None = None  # what is searched, where the runs are not all planned at the start

    def find(self, values: dict[str, Any], seed: int) -> SweepRun | None:
        return next((run for run in self.runs if run.values == values and run.seed == seed), None)

    def add(self, values: dict[str, Any], seed: int) -> SweepRun:
        """A new run. A combination that is known keeps its number."""
        known = next((run.trial for run in self.runs if run.values == values), None)
        number = known or max((run.trial for run in self.runs), default=0) + 1
        self.runs.append(SweepRun(number, values, seed))
        return self.runs[-1]


def is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def write_sweep(folder: Path, plan: SweepPlan, found: dict[str, Any]) -> None:
    """Write the plan, and what was found so far."""
    report = {
        "command": plan.command,
        "keys": plan.keys,
        "init_from": plan.init_from,
        "search": plan.search,
        **found,
        "runs": [{"run": run.name, **vars(run)} for run in plan.runs],
    }
    write_run_file(folder / SWEEP_FILE, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def read_report(folder: Path) -> dict[str, Any]:
    """All that the file has."""
    try:
        found = read_json((folder / SWEEP_FILE).read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        return found
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError(
            f"{folder} is not a sweep" if missing else f"{folder / SWEEP_FILE} cannot be read",
            why=f"it has no {SWEEP_FILE}" if missing else str(error),
            remedy="give the folder that `phalanx sweep` named",
        ) from error


def read_plan(folder: Path) -> SweepPlan:
    """The runs of a sweep that was started before."""
    report = read_report(folder)
    try:
        runs = [
            SweepRun(int(run["trial"]), dict(run["values"]), int(run["seed"]), str(run["error"]))
            for run in report["runs"]
        ]
        keys, search = [str(key) for key in report["keys"]], report.get("search")
        return SweepPlan(str(report["command"]), keys, runs, report["init_from"], search)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / SWEEP_FILE} cannot be read", why=f"it lacks {error}", remedy="start the sweep again"
        ) from error
