"""Checkpoints: safetensors and JSON with a SHA-256 manifest, written as one folder atomically. Never pickle.

checkpoints/step-00001200/   model.safetensors  optimizer.safetensors  [ema.safetensors]  state.json  manifest.json
checkpoints/best.json        the best step, whose checkpoint is kept
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.atomic import make_folder, sync, write_text_atomically
from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.fold_paths import refuse_cross_validation

if TYPE_CHECKING:  # a missing checkpoint is refused without importing torch
    from torch import Tensor

FORMAT = 1
MANIFEST, STATE, BEST = "manifest.json", "state.json", "best.json"
FOLDER = "checkpoints"  # of a run
_PREFIX = "step-"
_CLAIM = ".claim-"


@dataclass(frozen=True)
class Loaded:
    """A verified checkpoint: groups of tensors by name (`model`, `optimizer`, `ema`), and everything else."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Write a checkpoint atomically: a complete folder is renamed into place.

    Before the rename, earlier checkpoints are not touched.
    """
    final = path_of(folder, step)
    aside = folder / f".{final.name}.{_owner()}.tmp"
    try:
        make_folder(folder)
        _sweep(folder)
        aside.mkdir()
        _write(aside, tensors, state)
        _put_in_place(aside, final)
        sync(folder)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise unwritable(folder, step, error) from error
    return final


def path_of(folder: Path, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return folder / f"{_PREFIX}{step:08d}"


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder."""
    return int(path.name.rpartition("-")[2])


def claim(folder: Path, step: int) -> bool:
    """Claim the saving of a step. True for the first of several workers; the others need not save it."""
    try:
        make_folder(folder)
        os.close(os.open(folder / f"{_CLAIM}{step:08d}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError as error:
        raise unwritable(folder, step, error) from error
    return True


def forget_claims(folder: Path) -> None:
    """Remove the claims of an earlier job: its steps may be reached and saved again."""
    for entry in folder.glob(f"{_CLAIM}*"):
        entry.unlink(missing_ok=True)


def unwritable(folder: Path, step: int, error: OSError) -> UserError:
    """The error for a full disk, or missing permissions."""
    kept = latest_path(folder)
    return UserError(
        f"the checkpoint of step {step} cannot be written to {folder}",
        why=error.strerror or str(error),
        remedy="free some space or fix the permissions, then continue with --resume: "
        + (f"{kept} is complete" if kept else "there is no earlier checkpoint"),
    )


def _write(aside: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    for group, named in tensors.items():
        try:
            save_file(_storable(named), aside / f"{group}.safetensors")
        except SafetensorError as error:
            raise OSError(str(error)) from error
    text = json.dumps({"format": FORMAT, **state}, indent=1, allow_nan=False)
    (aside / STATE).write_text(text, encoding="utf-8")
    names = sorted(entry.name for entry in aside.iterdir())
    manifest = {name: {"bytes": (aside / name).stat().st_size, "sha256": _digest(aside / name)} for name in names}
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for entry in aside.iterdir():
        sync(entry)
    sync(aside)


def _storable(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU without shared memory, as safetensors needs them."""
    seen: set[int] = set()
    storable = {}
    for name, tensor in named.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.numel() and plain.data_ptr() in seen:
            plain = plain.clone()
        seen.add(plain.data_ptr())
        storable[name] = plain
    return storable


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _owner() -> str:
    """A name for this process, unique among hosts that share the folder."""
    return f"{os.getpid()}@{platform.node().replace('.', '-')}"


def _sweep(folder: Path) -> None:
    """Remove incomplete checkpoints of dead processes of this host."""
    for entry in folder.glob(f".{_PREFIX}*.tmp"):
        owner = entry.name.split(".")[2]
        pid, _, host = owner.partition("@")
        if owner == _owner() or (host == _owner().partition("@")[2] and not Path(f"/proc/{pid}").exists()):
            shutil.rmtree(entry, ignore_errors=True)


def _put_in_place(aside: Path, final: Path) -> None:
    """Move the old checkpoint away and rename the new one. Another worker may write the same step in between."""
    old = _put_away(final)
    try:
        aside.rename(final)
    except OSError:
        if not final.exists():
            raise
        old = _put_away(final)
        aside.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def steps_saved(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(entry for entry in folder.glob(f"{_PREFIX}*") if _is_step(entry))


def _is_step(entry: Path) -> bool:
    """Whether this is a checkpoint, and not a user's copy such as step-00000008.bak."""
    return entry.is_dir() and entry.name.removeprefix(_PREFIX).isdecimal()


def latest_path(folder: Path) -> Path | None:
    """The newest checkpoint, verified or not."""
    return next(reversed(steps_saved(folder)), None)


def mark_best(folder: Path, step: int, score: float, metric: str = "top1") -> None:
    """Mark a checkpoint as the best by this metric, so that `prune` keeps it."""
    try:
        write_text_atomically(folder / BEST, json.dumps({"step": step, metric: score}))
    except OSError as error:
        raise UserError(
            f"{folder / BEST} cannot be written",
            why=error.strerror or str(error),
            remedy="make room or mend the permissions; checkpoints already saved are valid",
        ) from error


def best_path(folder: Path) -> Path | None:
    """The checkpoint marked as the best, if it exists."""
    step = _best_step(folder)
    path = path_of(folder, step) if step is not None else None
    return path if path is not None and path.is_dir() else None


def _best_step(folder: Path) -> int | None:
    try:
        return int(read_json((folder / BEST).read_bytes())["step"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def forget_best_after(folder: Path, step: int) -> None:
    """Remove the mark of the best if it is newer than a step that the run goes back to."""
    best = _best_step(folder)
    if best is not None and best > step:
        (folder / BEST).unlink(missing_ok=True)


def prune(folder: Path, keep_last: int, done: Callable[[Path], bool] = lambda path: True) -> None:
    """Delete all checkpoints but the newest `keep_last`, the best, and those that are not `done`."""
    best = best_path(folder)
    for path in steps_saved(folder)[:-keep_last]:
        if path != best and done(path):
            shutil.rmtree(_put_away(path), ignore_errors=True)


def _put_away(path: Path) -> Path:
    """Rename a checkpoint before it is deleted, so that a partly deleted one is never taken for a complete one."""
    doomed = path.with_name(f".{path.name}.{_owner()}.old.tmp")
    if path.exists():
        path.rename(doomed)
    return doomed


def set_aside_after(path: Path) -> list[Path]:
    """Rename the damaged checkpoints newer than `path`, so that they are not used."""
    kept = []
    for newer in [other for other in steps_saved(path.parent) if other.name > path.name]:
        kept.append(newer.with_name(f"damaged-{newer.name}"))
        shutil.rmtree(kept[-1], ignore_errors=True)
        newer.rename(kept[-1])
    return kept


def load(path: Path) -> Loaded:
    """Read a checkpoint, verifying every byte."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    names = verify(path)
    try:
        state = read_json((path / STATE).read_bytes())
        if not isinstance(state, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise _damaged(path, f"its {STATE} cannot be read ({error})") from error
    if state.get("format") != FORMAT:
        raise UserError(
            f"{path} is a checkpoint of format {state.get('format')}",
            why=f"this version of Phalanx reads format {FORMAT}",
            remedy="use the version that wrote it (see state.json)",
        )
    files = [path / name for name in names if name.endswith(".safetensors")]
    try:
        return Loaded(path, {file.stem: load_file(file) for file in files}, state)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, f"its tensors cannot be read ({error})") from error


def verify(path: Path) -> list[str]:
    """Refuse a checkpoint whose files differ from its manifest. Returns their names; other files are not part of it."""
    if damage := _damage(path):
        raise _damaged(path, damage)
    return sorted(read_json((path / MANIFEST).read_bytes()))


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"the checkpoint {path} is damaged", why=why, remedy="use an earlier checkpoint, or a backup")


def _damage(path: Path) -> str:
    try:
        if not (path / MANIFEST).is_file():  # a pipe would never end
            return f"its {MANIFEST} is missing"
        manifest = read_json((path / MANIFEST).read_bytes())
        for name, expected in manifest.items():
            if Path(name).name != name:
                return f"its {MANIFEST} names {name}, which is not a file in it"
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != expected["bytes"]:
                return f"{name} has {file.stat().st_size} bytes, {expected['bytes']} were written"
            if _digest(file) != expected["sha256"]:
                return f"{name} has changed since it was written (SHA-256 differs)"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    return "" if STATE in manifest else f"its {MANIFEST} does not name {STATE}"


def load_newest(folder: Path) -> tuple[Loaded, list[str]]:
    """The newest complete checkpoint of a run, and a warning for each damaged one that was skipped."""
    warnings: list[str] = []
    for path in reversed(steps_saved(folder)):
        try:
            return load(path), warnings
        except UserError as error:
            warnings.append(f"{error.what}: {error.why}; the one before it is used")
    raise UserError(
        f"there is no usable checkpoint in {folder}",
        why="; ".join(warnings) or "the run ended before its first checkpoint",
        remedy="start the run again",
    )


def find(place: Path, *, prefer_best: bool = True) -> Path:
    """The checkpoint of a path that a user gives: a run folder, its checkpoints folder, or one checkpoint."""
    if (place / STATE).is_file() or (place / MANIFEST).is_file():
        return place
    for folder in (place / FOLDER, place):
        best = best_path(folder) if prefer_best else None
        found = best or latest_path(folder)
        if found:
            return found
    refuse_cross_validation(place)
    raise UserError(
        f"no checkpoint at {place}",
        why="it is neither a run with checkpoints nor a checkpoint" if place.exists() else "there is no such folder",
        remedy="give a run's folder (runs/…) or one of its checkpoints/step-… folders",
    )
