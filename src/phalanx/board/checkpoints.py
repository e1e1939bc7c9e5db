"""Checkpoints of a run, and which of its files may be downloaded."""

import contextlib
import os
import re
from typing import Any

from phalanx.board.places import Place
from phalanx.runs import checkpoint
from phalanx.runs.inside import json_inside

_STEP = re.compile(r"step-\d{1,12}")
_FILE = re.compile(r"[\w-]+\.(safetensors|json)")
# Files whose content the board shows or offers. Code, keys and everything else that may lie there is not among them.
_OFFERED = re.compile(
    r"checkpoints/step-\d{1,12}/[\w-]+\.(safetensors|json)|eval[\w.-]*/(confusion|average_precision)\.png"
    r"|eval[\w.-]*/mistakes/\d{1,9}\.png|eval[\w.-]*/(eval|mistakes)\.json|eval[\w.-]*/per_class\.tsv"
    r"|(profile|trace)\.json|config\.yaml|summary\.json|quarantine\.tsv|events(-evaluator)?\.jsonl|curves\.(png|svg)"
    r"|log\.txt|logs/[\w.-]+\.(log|jsonl)|export/[\w.-]+\.(safetensors|json|pt2|onnx)"
)


def is_offered(name: str) -> bool:
    return _OFFERED.fullmatch(name) is not None


def checkpoints_of(place: Place) -> list[dict[str, Any]]:
    """Each complete checkpoint: step, time, size, files; the newest first."""
    folder = place.path / checkpoint.FOLDER
    best = _best(place)
    found: list[dict[str, Any]] = []
    for name in _names(str(folder), _STEP):
        with contextlib.suppress(FileNotFoundError):  # a run that goes on removes its old ones
            one = _checkpoint(place, name)
            if one is not None:
                found.append({**one, "best": one["step"] == best})
    return sorted(found, key=lambda one: -one["step"])


def _checkpoint(place: Place, name: str) -> dict[str, Any] | None:
    """None where it is not complete."""
    folder = place.path / checkpoint.FOLDER / name
    files: list[dict[str, Any]] = []
    for file in _names(str(folder), _FILE):
        files.append({"name": f"{checkpoint.FOLDER}/{name}/{file}", "bytes": (folder / file).lstat().st_size})
    if not any(one["name"].endswith(checkpoint.MANIFEST) for one in files):
        return None
    total = _bytes(place, f"{checkpoint.FOLDER}/{name}") or sum(one["bytes"] for one in files)
    return {"step": checkpoint.step_of(folder), "t": folder.lstat().st_mtime, "bytes": total, "files": files}


def _names(folder: str, pattern: re.Pattern[str]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(one.name for one in entries if pattern.fullmatch(one.name) and not one.is_symlink())
    except OSError:
        return []


def _bytes(place: Place, folder: str) -> int:
    """What the manifest says: of a run on another host, weights are not here."""
    try:
        found = json_inside(place.path, f"{folder}/{checkpoint.MANIFEST}") or {}
    except ValueError:
        return 0
    sizes = [one.get("bytes") for one in found.values() if isinstance(one, dict)]
    return sum(size for size in sizes if isinstance(size, int))


def _best(place: Place) -> int | None:
    try:
        found = json_inside(place.path, f"{checkpoint.FOLDER}/{checkpoint.BEST}") or {}
    except ValueError:
        return None
    step = found.get("step")
    return step if isinstance(step, int) else None
