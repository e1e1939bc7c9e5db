"""What `phalanx profile` runs: the same training, with a few steps profiled and nothing evaluated or saved."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.config.resolve import Layer
from phalanx.errors import UserError
from phalanx.roles.request import Request
from phalanx.runs.folder import RUNS

_ORIGIN = "phalanx profile"


DEFAULTS = Layer(_ORIGIN, {"train": {"profile": {"steps": 10}}})  # below the user's settings


def profile_layer(steps: int | None, warmup: int | None) -> Layer:
    """The settings that make a run a profile: nothing is evaluated, saved, drawn or reported elsewhere."""
    given = {name: value for name, value in (("steps", steps), ("start", warmup)) if value is not None}
    values: dict[str, Any] = {
        "train": {"profile": {**given, "alone": True}, "curves": False},
        "eval": {"evaluator": False},
        "log": {"to": [], "notify": []},
    }
    return Layer(_ORIGIN, values)


def profile_request(request: Request) -> Request:
    """The request with a folder of its own, whose name says that it is a profile."""
    if request.config.data.folds is not None:
        raise UserError(
            "a profile is of one run, and data.folds asks for several",
            why="each fold is a run",
            remedy="leave --folds out",
        )
    if not request.config.train.profile.steps:
        raise UserError(
            "a profile of no steps", why="train.profile.steps=0 is off", remedy="--steps 10, or leave it out"
        )
    named = RUNS / f"{request.config.name}-profile-{time.strftime('%Y%m%d-%H%M%S')}"
    return request if request.out is not None else replace(request, out=_unused(named))


def _unused(path: Path) -> Path:
    """The path, or one with a number where another profile was begun in the same second."""
    numbered = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in range(1, 1000))
    return next(each for each in numbered if not each.exists())
