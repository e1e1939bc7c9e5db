"""Weights & Biases: a run there for each run here. Without a login it is kept in RUN/wandb for `wandb sync`."""

import importlib
import os
import secrets
from collections.abc import Mapping
from typing import Any

from phalanx.observe.loggers.base import LoggedRun

NAME = "wandb"


class WandbLogger:
    """Curves against our step, which may go back after a resume; W&B's own step only grows."""

    def __init__(self) -> None:
        self._wandb: Any = None
        self._run: Any = None
        self._logged: LoggedRun | None = None
        self._step = 0

    def begin(self, run: LoggedRun) -> None:
        self._wandb = importlib.import_module("wandb")
        self._logged = run
        known = run.known(NAME)
        identity = known.get("id") or secrets.token_hex(4)
        project = known.get("project") or run.project
        self._run = self._wandb.init(
            project=project,
            id=identity,
            name=run.name,
            dir=str(run.folder),
            config=dict(run.config),
            resume="allow",
            mode=self._mode(),
            settings=self._wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        run.keep(NAME, {"id": identity, "project": project})
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def _mode(self) -> str:
        """What WANDB_MODE says; offline without a login, because W&B would ask for one on the terminal."""
        given = os.environ.get("WANDB_MODE")
        return given or ("online" if _has_login(self._wandb) else "offline")

    def rewind(self, step: int) -> None:
        """The curves go on from an earlier step."""

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        self._step = max(self._step, step)
        self._run.log({"step": step, "time": time_s, **values})

    def finish(self, *, failed: bool) -> None:
        picture = self._logged.confusion if self._logged is not None else None
        if picture is not None:
            self._run.log({"step": self._step, "confusion": self._wandb.Image(str(picture))})
        self._run.finish(exit_code=int(failed))


def _has_login(wandb: Any) -> bool:
    try:
        return bool(os.environ.get("WANDB_API_KEY") or wandb.api.api_key)
    except Exception:
        return False
