"""From a recipe, settings and flags to a request. Checks what it can before anything heavy is imported."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.api.code import with_code
from phalanx.api.folds import layer_of
from phalanx.api.masking import masked_words
from phalanx.config.flags import flag_layers, imply_collective
from phalanx.config.recipes import default_recipe, load_recipe
from phalanx.config.resolve import Layer, parse_override, resolve
from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.custom.installed import is_importing
from phalanx.errors import UserError
from phalanx.launch.env.assign_role import assign_role, settings_from_role
from phalanx.roles.request import Request, resume_request
from phalanx.runs.fold_paths import fold_path
from phalanx.runs.folder import RunFolder
from phalanx.runs.resume import choose, find_cross_validation

LATEST = "latest"  # as `resume`: the latest run under runs/


def make_request(
    recipe: str | None,
    overrides: Sequence[str | Layer],
    flags: Mapping[str, Any],
    *,
    out: Path | None = None,
    resume: str | None = None,
    at: str | None = None,
    init_from: Path | None = None,
    accept_code: str | None = None,
    role: Role | None = None,
    command: str = "",
) -> Request:
    """What to train. `overrides` are layers, or texts such as optim.lr=0.2; a launcher gave this process `role`.

    `accept_code` (run or new) chooses where the user's own code has changed since a resumed run began.
    """
    if is_importing():
        raise UserError(
            "a run cannot be started while its own code is imported",
            why="every process of a run imports the file that defines your model, loss or dataset",
            remedy="put the call under `if __name__ == '__main__':`, so that only the script itself makes it",
        )
    given = [*flag_layers(flags), *(parse_override(one) if isinstance(one, str) else one for one in overrides)]
    command = command or command_line()
    if resume is not None:
        folder = find_cross_validation(None if resume == LATEST else Path(resume))
        if folder is not None:
            return _resumed_folds(folder, given, recipe, out, at, init_from, accept_code, command)
        return with_code(_resumed(given, recipe, out, resume, at, init_from, role, command), accept_code)
    if at is not None:
        raise UserError(
            "--at does not go without --resume",
            why="it says from which checkpoint of a run to go on",
            remedy=f"--resume RUN --at {at}",
        )
    layers = load_recipe(recipe or default_recipe(given)).layers
    given, note = settings_from_role(role, layers, given)
    resolved = resolve([*layers, *imply_collective(layers, given)])
    _refuse_other_world(resolved.config.exchange, role)
    request = Request(resolved, command, out=out, init_from=init_from, notes=(note,) if note else ())
    return with_code(request, accept_code)


def _resumed(
    given: list[Layer],
    recipe: str | None,
    out: Path | None,
    resume: str,
    at: str | None,
    init_from: Path | None,
    role: Role | None,
    command: str,
) -> Request:
    _refuse_with_resume(recipe, out, init_from)
    run, step = choose(None if resume == LATEST else Path(resume), at)
    before = run.layer()
    given, note = settings_from_role(role, [before], given)
    request = resume_request(before, given, command, run, step)
    _refuse_other_world(request.config.exchange, role)
    return replace(request, notes=(note,) if note else ())


def _resumed_folds(
    folder: Path,
    given: list[Layer],
    recipe: str | None,
    out: Path | None,
    at: str | None,
    init_from: Path | None,
    accept_code: str | None,
    command: str,
) -> Request:
    """Go on with a cross-validation, at the fold where it stopped."""
    _refuse_with_resume(recipe, out, init_from)
    before, home = layer_of(folder)
    request = resume_request(before, given, command, home, None)
    if at is not None or request.config.data.fold is not None:
        fold = fold_path(folder, request.config.data.fold or 1)
        raise UserError(
            f"{'--at' if at else 'data.fold'} does not go together with a cross-validation, {folder}",
            why="it goes on at the fold where it stopped",
            remedy=f"leave it out, or name the fold: --resume {fold}" + (f" --at {at}" if at else ""),
        )
    return replace(with_code(request, accept_code), resume=RunFolder(folder))


def _refuse_with_resume(recipe: str | None, out: Path | None, init_from: Path | None) -> None:
    if recipe or out or init_from:
        clash = f"the recipe {recipe}" if recipe else "--out" if out else "--init-from"
        raise UserError(
            f"--resume does not go together with {clash}",
            why="a resumed run keeps its recipe, its folder and its weights",
            remedy="leave it out, or start a new run",
        )


def command_line() -> str:
    """What the user typed, for the record. Inside a batch job: what was typed when it was submitted."""
    return os.environ.get("PHALANX_COMMAND") or shlex.join(["phalanx", *masked_words(sys.argv[1:])])


def _refuse_other_world(exchange: ExchangeConfig, role: Role | None) -> None:
    assigned = role and assign_role(role, exchange)
    if assigned is not None and assigned.kind == "trainer" and assigned.world != exchange.workers:
        raise UserError(
            f"{exchange.workers} workers are asked for, but {assigned.launcher} started {assigned.world}",
            why="each trainer takes its share of every step, so all must agree on how many there are",
            remedy=f"leave --workers out, or have {assigned.launcher} start {exchange.workers}",
        )
