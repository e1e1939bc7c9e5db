"""The profile of a run: where the time of some steps went, checked so that the page can draw it."""

import math
import os
import stat
from typing import Any

from phalanx.board.places import Place
from phalanx.runs.inside import json_inside
from phalanx.runs.profile_file import PROFILE_FILE, VERSION

_MOST_NODES = 20_000
_DEEPEST = 200  # levels of a tree
_LONGEST = 2000  # characters of a text

Data = dict[str, Any]


def has_profile(place: Place) -> bool:
    try:
        return stat.S_ISREG(os.lstat(place.path / PROFILE_FILE).st_mode)
    except OSError:
        return False


def profile_of(place: Place) -> Data | None:
    """The profile; None where there is none. ValueError, KeyError or TypeError where its file is damaged."""
    found = json_inside(place.path, PROFILE_FILE)
    if found is None:
        return None
    if found.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION} of the format")
    return {
        "model": _text(found["model"]),
        "first_step": int(found["first_step"]),
        "steps": int(found["steps"]),
        "samples_per_step": int(found["samples_per_step"]),
        "images_per_s": _number(found["images_per_s"]),
        "advice": [{name: _text(one[name]) for name in ("reason", "change")} for one in found["advice"]],
        "slowest": None if found["slowest"] is None else int(found["slowest"]["rank"]),
        "workers": [_worker(one) for one in found["workers"]],
    }


def _worker(found: Data) -> Data:
    waited = found["waited_ms"]
    return {
        "rank": int(found["rank"]),
        "host": _text(found["host"]),
        "ms": _number(found["ms"]),
        "waited_ms": None if waited is None else _number(waited),
        "parts": {_text(name): _number(value) for name, value in found["parts"].items()},
        "kinds": [
            {"kind": _text(one["kind"]), "ms": _number(one["ms"]), "calls": _number(one["calls"])}
            for one in found["kinds"]
        ],
        "tree": _node(found["tree"], [_MOST_NODES], 0),
    }


def _node(found: Data, left: list[int], depth: int) -> Data:
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        raise ValueError("its tree is too large to draw")
    return {
        "name": _text(found["name"]),
        "kind": _text(found["kind"]),
        "ms": _number(found["ms"]),
        "calls": _number(found["calls"]),
        "children": [_node(child, left, depth + 1) for child in found["children"]],
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is not a text")
    return value[:_LONGEST]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is not a time or a count")
    return float(value)
