"""Which run a user wants to go on with, and from which of its checkpoints."""

import os
import re
from pathlib import Path

from phalanx.config.durations import Duration
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.folder import RunFolder, find_run
from phalanx.runs.rewind import ASIDE, last_start


def choose(place: Path | None, at: str | None) -> tuple[RunFolder, int | None]:
    """The run to go on with, and the step of the checkpoint to go on from; None is the newest.

    A run may be on another host than this one, so nothing is said here about whether there is such a checkpoint.
    """
    run, step = _split(place) if place is not None else (None, None)
    folder = find_run(run)
    if at is None:
        return folder, step
    if step is not None:
        raise UserError(
            f"--at {at} does not go together with a checkpoint, {place}",
            why="both say where the run is to go on",
            remedy=f"--resume {folder.path} --at {at}, or --resume {place}",
        )
    return folder, step_at(folder.path, at)


def _split(place: Path) -> tuple[Path, int | None]:
    """RUN/checkpoints/step-8 → RUN, 8. Whatever is not a checkpoint is taken for a run."""
    whole = Path(os.path.abspath(place))  # noqa: PTH100 - it may be `step-8` in the folder itself, or a link
    named = re.fullmatch(r"step-(\d+)", whole.name)
    if named is None or (place / EVENTS_FILE).is_file():
        return place, None
    if whole.parent.name.startswith(ASIDE):
        raise UserError(
            f"{place} is no longer part of its run",
            why="the run went back to an earlier checkpoint, and this one was put aside",
            remedy=f"move it to {whole.parent.parent} first; or start a new run from its weights with --init-from",
        )
    if whole.parent.name != checkpoint.FOLDER:
        return place, None
    return (place.parent.parent if place.parent.name == checkpoint.FOLDER else whole.parent.parent), int(named[1])


def step_at(run: Path, at: str) -> int:
    """The step of a place in a run, counted as the run last counted its steps."""
    try:
        duration = Duration.parse(at)
    except ValueError as error:
        raise UserError(f"--at cannot be {at!r}", why=str(error), remedy=f"--resume {run} --at 30ep") from error
    start = last_start(run)
    if start is None:
        raise UserError(f"{run} has no place {at}", why="it ended before training began", remedy="start the run anew")
    return duration.steps(
        steps_per_epoch=start["steps_per_epoch"],
        samples_per_step=start["samples_per_step"],
        total_steps=start["total_steps"],
    )
