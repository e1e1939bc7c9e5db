"""Evaluations of a run: the confusion matrix, every class, and the worst mistakes, from what `phalanx eval` wrote."""

import os
import re
from typing import Any

from phalanx.board.places import Place
from phalanx.runs.inside import json_inside

EVAL_FILE, MISTAKES_FILE = "eval.json", "mistakes.json"
# eval, eval-DATA. What --attack writes has no confusions: its matrix would show right answers alone.
_NAME = re.compile(r"eval(?!-attack(-|$))[\w.-]*")
_MOST_CELLS = 200  # classes of a matrix that is drawn; of more, the confusions are listed


def evaluation_names(place: Place) -> list[str]:
    """The folders with an evaluation: eval, eval-DATA."""
    try:
        with os.scandir(place.path) as entries:
            names = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [name for name in names if _NAME.fullmatch(name) and (place.path / name / EVAL_FILE).is_file()]


def evaluation_times(place: Place, names: list[str]) -> list[float]:
    """When each was made: the page shows one that was made again anew."""
    times = []
    for name in names:
        try:
            times.append((place.path / name / EVAL_FILE).lstat().st_mtime)
        except OSError:  # it goes away
            times.append(0.0)
    return times


def evaluation(place: Place, name: str) -> dict[str, Any] | None:
    """An evaluation; None where there is none of that name. ValueError where its file is damaged."""
    if not _NAME.fullmatch(name):
        return None
    found = json_inside(place.path, f"{name}/{EVAL_FILE}")
    if found is None:
        return None
    classes = [one for one in found.get("classes") or [] if isinstance(one, dict) and "name" in one]
    confusions = [one for one in found.get("confusions") or [] if isinstance(one, dict)]
    kept = ("checkpoint", "step", "model", "data", "samples", "top1", "topk", "k", "loss", "metric", "metrics")
    return {
        "name": name,
        **{key: found.get(key) for key in kept},
        "classes": classes,
        "matrix": _matrix(classes, confusions),
        "confusions": confusions[:500],
        "mistakes": _mistakes(place, name),
    }


def _matrix(classes: list[dict[str, Any]], confusions: list[dict[str, Any]]) -> list[list[int]] | None:
    """Counts by (true class, answer); None with several labels a sample, or too many classes to draw."""
    if not classes or len(classes) > _MOST_CELLS or any("correct" not in one for one in classes):
        return None
    numbers = {one["name"]: number for number, one in enumerate(classes)}
    matrix = [[0] * len(classes) for _ in classes]
    for one in classes:
        matrix[numbers[one["name"]]][numbers[one["name"]]] = int(one["correct"])
    for one in confusions:
        label, answer = numbers.get(one.get("class")), numbers.get(one.get("answer"))
        if label is not None and answer is not None:
            matrix[label][answer] = int(one.get("times", 0))
    return matrix


def _mistakes(place: Place, name: str) -> list[dict[str, Any]]:
    """Wrong answers with their pictures, the most confident first."""
    try:
        found = json_inside(place.path, f"{name}/{MISTAKES_FILE}") or {}
    except ValueError:
        return []
    listed = found.get("mistakes")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
