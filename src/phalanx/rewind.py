"""Going on from an earlier checkpoint: which one a user means, and what becomes of those that were saved later.

checkpoints/after-step-00000008-20260131-120000/step-00000012/   kept, and no longer part of the run
"""

import os
import re
import time
from pathlib import Path

from phalanx import checkpoint
from phalanx.config.durations import Duration
from phalanx.errors import UserError
from phalanx.observe.events import EVENTS_FILE, Record, Start, read_events
from phalanx.run import RunFolder, find_run

_MOST_NAMED = 12  # of a run's checkpoints, the nearest ones
_ASIDE = "after-"  # and the name of the checkpoint that the run went back to, and when


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
    if whole.parent.name.startswith(_ASIDE):
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
    start = _last_start(run)
    if start is None:
        raise UserError(f"{run} has no place {at}", why="it ended before training began", remedy="start the run anew")
    return duration.steps(
        steps_per_epoch=start["steps_per_epoch"],
        samples_per_step=start["samples_per_step"],
        total_steps=start["total_steps"],
    )


def _last_start(run: Path) -> Record | None:
    return next((record for record in reversed(read_events(run)) if record["kind"] == Start.kind), None)


def find_step(folder: Path, step: int) -> Path:
    """The checkpoint of exactly this step, or a refusal that names those that are there."""
    path = checkpoint.path_of(folder, step)
    if path.is_dir():
        return path
    aside = sorted(folder.glob(f"{_ASIDE}*/{path.name}"))
    there = [checkpoint.step_of(one) for one in checkpoint.steps_saved(folder)]
    near = sorted(sorted(there, key=lambda one: abs(one - step))[:_MOST_NAMED])
    raise UserError(
        f"there is no checkpoint of step {step} in {folder}",
        why=f"it was put aside: {aside[-1]}" if aside else f"there {_listed(folder.parent, near)}",
        remedy=f"move it back to {folder} to go on from it"
        if aside
        else "choose one of those; checkpoint.every and checkpoint.keep_last say which are saved and kept"
        if there
        else "start the run anew",
    )


def _listed(run: Path, steps: list[int]) -> str:
    if not steps:
        return "is none"
    start = _last_start(run) if (run / EVENTS_FILE).is_file() else None
    named = [f"{step} ({step / start['steps_per_epoch']:.4g}ep)" if start else str(step) for step in steps]
    return f"{'are those of steps' if len(steps) > 1 else 'is that of step'} {', '.join(named)}"


def put_aside_after(folder: Path, step: int, when: str | None = None) -> None:
    """Keep what was saved after a step where nobody takes it for a part of the run. The best is never one of these."""
    later = [path for path in checkpoint.steps_saved(folder) if checkpoint.step_of(path) > step]
    if not later:
        return
    when = when or time.strftime("%Y%m%d-%H%M%S")
    checkpoint.forget_best_after(folder, step)
    try:
        aside = _new(folder / f"{_ASIDE}{checkpoint.path_of(folder, step).name}-{when}")
        for path in reversed(later):  # whatever interrupts this, the run has no gap
            path.rename(aside / path.name)
    except OSError as error:
        raise UserError(
            f"what was saved after step {step} cannot be put aside in {folder}",
            why=error.strerror or str(error),
            remedy="mend the permissions, then try again: every checkpoint is still there",
        ) from error


def _new(path: Path) -> Path:
    """Two of the same second are told apart by a number."""
    number, numbered = 1, path
    while numbered.exists():
        number += 1
        numbered = path.with_name(f"{path.name}-{number}")
    numbered.mkdir()
    return numbered


def told_aside(folder: Path, step: int) -> list[str]:
    """A line for each time that a run went back to a step."""
    found = sorted(folder.glob(f"{_ASIDE}{checkpoint.path_of(folder, step).name}-*"))
    return [
        f"what was saved after step {step} is no longer part of the run; it is kept in {path} "
        f"({', '.join(one.name for one in checkpoint.steps_saved(path))})"
        for path in found
    ]
