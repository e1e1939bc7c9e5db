"""Find the run and the checkpoint that `--resume` and `--at` name."""

import os
import re
from pathlib import Path

from phalanx.config.durations import Duration
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import FOLDS_FILE, is_cross_validation, run_files
from phalanx.runs.folder import RUNS, RunFolder, find_run
from phalanx.runs.rewind import ASIDE, last_start


def find_cross_validation(place: Path | None) -> Path | None:
    """The cross-validation at `place`, or that of the latest run under runs/; None if it is a single run."""
    if place is not None:
        return place if is_cross_validation(place) else None
    heads = [path for name in (EVENTS_FILE, FOLDS_FILE) for path in run_files(RUNS, name)]
    latest = max(heads, key=lambda path: path.stat().st_mtime, default=None)
    return next((path for path in latest.parents[:2] if is_cross_validation(path)), None) if latest else None


def choose(place: Path | None, at: str | None) -> tuple[RunFolder, int | None]:
    """The run to resume, and the step of the checkpoint to start from; None is the newest.

    The run may be on another host, so this does not check that the checkpoint exists.
    """
    run, step = _split(place) if place is not None else (None, None)
    folder = find_run(run)
    if at is None:
        return folder, step
    if step is not None:
        raise UserError(
            f"--at {at} does not go together with a checkpoint, {place}",
            why="both name the checkpoint to start from",
            remedy=f"--resume {folder.path} --at {at}, or --resume {place}",
        )
    return folder, step_at(folder.path, at)


def _split(place: Path) -> tuple[Path, int | None]:
    """RUN/checkpoints/step-8 → RUN, 8. Any other path is taken for a run."""
    whole = Path(os.path.abspath(place))  # noqa: PTH100 - it may be `step-8` in the folder itself, or a link
    named = re.fullmatch(r"step-(\d+)", whole.name)
    if named is None or (place / EVENTS_FILE).is_file():
        return place, None
    if whole.parent.name.startswith(ASIDE):
        raise UserError(
            f"{place} is no longer part of its run",
            why="the run went back to an earlier checkpoint, and this one was set aside",
            remedy=f"move it to {whole.parent.parent} first; or start a new run from its weights with --init-from",
        )
    if whole.parent.name != checkpoint.FOLDER:
        return place, None
    return (place.parent.parent if place.parent.name == checkpoint.FOLDER else whole.parent.parent), int(named[1])


def step_at(run: Path, at: str) -> int:
    """The step at a duration such as 30ep, with the steps per epoch of the run's last start."""
    try:
        duration = Duration.parse(at)
    except ValueError as error:
        raise UserError(f"--at cannot be {at!r}", why=str(error), remedy=f"--resume {run} --at 30ep") from error
    start = last_start(run)
    if start is None:
        raise UserError(
            f"{run} has no step at {at}", why="it ended before training began", remedy="start the run again"
        )
    return duration.steps(
        steps_per_epoch=start["steps_per_epoch"],
        samples_per_step=start["samples_per_step"],
        total_steps=start["total_steps"],
    )
