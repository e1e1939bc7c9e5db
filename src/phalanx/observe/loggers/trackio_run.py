"""Trackio: a local database and dashboard with W&B's interface (`trackio show`)."""

import importlib
from collections.abc import Mapping
from typing import Any

from phalanx.observe.loggers.base import LoggedRun

NAME = "trackio"


class TrackioLogger:
    """Curves by step in the project's database; a resumed run goes on under its name."""

    def __init__(self) -> None:
        self._trackio: Any = None
        self._run: Any = None

    def begin(self, run: LoggedRun) -> None:
        self._trackio = importlib.import_module("trackio")
        known = run.known(NAME)
        project, name = known.get("project") or run.project, known.get("name") or run.name
        self._run = self._trackio.init(project=project, name=name, config=dict(run.config), resume="allow", embed=False)
        run.keep(NAME, {"project": project, "name": name})

    def rewind(self, step: int) -> None:
        """Trackio keeps all points."""

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        self._trackio.log(dict(values), step=step)

    def finish(self, *, failed: bool) -> None:
        self._trackio.finish()
