"""What a logger is, what it knows of its run, and the file that keeps its identity for a resume."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from phalanx.config.resolve import SECRET, flatten
from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.folder import RunFolder, write_run_file

LOGGERS_FILE = "loggers.json"  # logger → what finds its run again
_ONE_AT_A_TIME = threading.Lock()
EVALUATION = Path("eval")  # the folder of `phalanx eval`, in a run's


@dataclass(frozen=True)
class LoggedRun:
    """A run as a logger sees it."""

    folder: Path
    project: str
    config: Mapping[str, Any]  # by dotted key

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def recipe(self) -> str:
        """config.yaml without a secret: services show it to others."""
        tree = RunFolder(self.folder).layer().values
        section, _, name = SECRET.partition(".")
        if isinstance(tree.get(section), dict):
            tree[section].pop(name, None)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)

    @property
    def confusion(self) -> Path | None:
        """The picture of the confusion matrix, if `phalanx eval` has drawn one."""
        path = self.folder / EVALUATION / "confusion.png"
        return path if path.is_file() else None

    def known(self, logger: str) -> dict[str, str]:
        """What an earlier part of this run has kept for a logger."""
        return _kept(self.folder).get(logger, {})

    def keep(self, logger: str, identity: Mapping[str, str]) -> None:
        with _ONE_AT_A_TIME:  # each logger has a thread of its own
            kept = {**_kept(self.folder), logger: dict(identity)}
            write_run_file(self.folder / LOGGERS_FILE, json.dumps(kept, indent=1) + "\n")


def logged_run(folder: Path, project: str) -> LoggedRun:
    """With all settings but a secret, as in its recipe."""
    config = flatten(RunFolder(folder).layer().values)
    return LoggedRun(folder, project, {key: value for key, value in config.items() if key != SECRET})


def _kept(folder: Path) -> dict[str, dict[str, str]]:
    try:
        found = read_json((folder / LOGGERS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Logger(Protocol):
    """A destination of numbers. It is used by one thread, and may raise whatever it likes."""

    def begin(self, run: LoggedRun) -> None:
        """Open it. A run that was logged there before goes on."""

    def rewind(self, step: int) -> None:
        """What came after this step is void: training goes on from there."""

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        """Numbers by name at a step; time in seconds since 1970."""

    def finish(self, *, failed: bool) -> None:
        """The run has ended, or stopped."""


def missing_package(logger: str, package: str) -> UserError:
    return UserError(
        f"--log {logger} needs the package {package}",
        why="it is not installed",
        remedy=f"pip install 'phalanx[{logger}]', or pip install {package}",
    )
