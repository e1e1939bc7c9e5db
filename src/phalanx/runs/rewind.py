"""Go back to an earlier checkpoint of a run: the later checkpoints are set aside.

checkpoints/after-step-00000008-20260131-120000/step-00000012/   kept, but no longer part of the run
"""

import time
from pathlib import Path

from phalanx.atomic import sync_names
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE, Record, Start, read_events

_MOST_NAMED = 12  # checkpoints that an error lists: the nearest
ASIDE = "after-"  # followed by the name of the checkpoint that the run went back to, and the time


def last_start(run: Path) -> Record | None:
    """The last start event of a run, which has its steps per epoch."""
    return next((record for record in reversed(read_events(run)) if record["kind"] == Start.kind), None)


def find_step(folder: Path, step: int) -> Path:
    """The checkpoint of exactly this step. The error lists those that exist."""
    path = checkpoint.path_of(folder, step)
    if path.is_dir():
        return path
    missing = f"there is no checkpoint of step {step} in {folder}"
    if aside := sorted(folder.glob(f"{ASIDE}*/{path.name}")):
        raise UserError(
            missing, why=f"it was set aside: {aside[-1]}", remedy=f"move it back to {folder} to resume from it"
        )
    there = [checkpoint.step_of(one) for one in checkpoint.steps_saved(folder)]
    if not there:
        raise UserError(missing, why="there is none", remedy="start the run again, or resume where its folder is")
    near = sorted(sorted(there, key=lambda one: abs(one - step))[:_MOST_NAMED])
    raise UserError(
        missing,
        why=f"there {_listed(folder.parent, near)}",
        remedy="choose one of those; checkpoint.every and checkpoint.keep_last control which are saved and kept",
    )


def _listed(run: Path, steps: list[int]) -> str:
    start = last_start(run) if (run / EVENTS_FILE).is_file() else None
    named = [f"{step} ({step / start['steps_per_epoch']:.4g}ep)" if start else str(step) for step in steps]
    return f"{'are those of steps' if len(steps) > 1 else 'is that of step'} {', '.join(named)}"


def put_aside_after(folder: Path, step: int, when: str | None = None) -> None:
    """Move the checkpoints after a step into a folder of their own. If the best is among them, its mark is removed."""
    later = [path for path in checkpoint.steps_saved(folder) if checkpoint.step_of(path) > step]
    if not later:
        return
    when = when or time.strftime("%Y%m%d-%H%M%S")
    checkpoint.forget_best_after(folder, step)
    try:
        aside = _new(folder / f"{ASIDE}{checkpoint.path_of(folder, step).name}-{when}")
        for path in reversed(later):  # newest first: if this is interrupted, the run has no gap
            path.rename(aside / path.name)
        for names in (aside, folder):  # otherwise a power cut might bring back what the run has left
            sync_names(names)
    except OSError as error:
        raise UserError(
            f"the checkpoints after step {step} cannot be set aside in {folder}",
            why=error.strerror or str(error),
            remedy="fix the permissions, then try again: every checkpoint is still there",
        ) from error


def _new(path: Path) -> Path:
    """Create a folder. A number distinguishes two of the same second."""
    number, numbered = 1, path
    while numbered.exists():
        number += 1
        numbered = path.with_name(f"{path.name}-{number}")
    numbered.mkdir()
    return numbered


def aside_warnings(folder: Path, step: int) -> list[str]:
    """A warning for each time that a run went back to a step."""
    found = sorted(folder.glob(f"{ASIDE}{checkpoint.path_of(folder, step).name}-*"))
    return [
        f"checkpoints saved after step {step} are no longer part of the run; they are kept in {path} "
        f"({', '.join(one.name for one in checkpoint.steps_saved(path))})"
        for path in found
    ]
