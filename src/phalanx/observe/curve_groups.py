"""Lines of a figure: a run or log each, or several seeds of one recipe as their mean and a band."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import yaml

from phalanx.config.text import read_yaml
from phalanx.observe.curves import Axis, Curve, Log, run_names, smoothed
from phalanx.observe.logs.read import FILES
from phalanx.observe.plot_options import PlotOptions, Seeds
from phalanx.runs.folder import RunFolder


@dataclass(frozen=True)
class Place:
    """A run or a log, and what the figure calls it."""

    path: Path
    label: str
    given: bool  # the user named it; equal names are one line


@dataclass(frozen=True)
class Group:
    """One line of the figure."""

    label: str
    logs: Sequence[Log]


@dataclass(frozen=True)
class Line:
    """A curve of a group: its mean, and the band around it if there are several."""

    curve: Curve
    raw: Curve  # before smoothing
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def named_places(words: Sequence[str | Path]) -> list[Place]:
    """From `PATH` or `NAME=PATH` to places. A path that exists may have an = in it."""
    found: list[tuple[Path, str | None]] = []
    for word in words:
        name, equals, path = str(word).partition("=")
        if equals and name and path and not Path(word).exists():
            found.append((Path(path), name))
        else:
            found.append((Path(word), None))
    names = iter(run_names([_home(path) for path, given in found if given is None]))
    return [Place(path, next(names) if given is None else given, given is not None) for path, given in found]


def _home(path: Path) -> Path:
    """What names a log: its file, or the folder of a file that is called the same everywhere."""
    return path.parent if path.name in FILES or ".tfevents." in path.name else path


def recipe_of(run: Path) -> str:
    """The settings of a run of ours without its seed; empty if they cannot be read."""
    try:
        tree = read_yaml(RunFolder(run).config.read_text(encoding="utf-8"))
        del tree["train"]["seed"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return ""
    return json.dumps(tree, sort_keys=True, default=str)


def group_logs(logs: Sequence[Log], places: Sequence[Place], seeds: Seeds) -> list[Group]:
    """Runs that differ in their seed alone, and logs that the user gave one name, are a line. In the order given."""
    groups: dict[str, list[int]] = {}
    for number, (log, place) in enumerate(zip(logs, places, strict=True)):
        key = f"run {number}"
        if seeds != "lines":
            key = f"name {place.label}" if place.given else f"recipe {log.recipe}" if log.recipe else key
        groups.setdefault(key, []).append(number)
    named = [
        (_group_label([places[n] for n in members]), [logs[n] for n in members], key) for key, members in groups.items()
    ]
    doubled = {label for label, count in Counter(label for label, _, _ in named).items() if count > 1}
    return [
        Group(_with_count(places[groups[key][0]].label if label in doubled else label, found), found)
        for label, found, key in named
    ]


def _group_label(members: Sequence[Place]) -> str:
    """What the names of seeds have in common: digits-s0 and digits-s1 are digits."""
    if len({place.label for place in members}) == 1:
        return members[0].label
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(place.label for place in members), strict=False))
    common = "".join(letters[0] for letters in alike)
    return re.sub(r"[-_. ]*(?:s|seed)?[-_. ]*\d*[-_. ]*$", "", common) or members[0].label


def _with_count(label: str, logs: Sequence[Log]) -> str:
    if len(logs) == 1:
        return label
    alike = logs[0].recipe and len({log.recipe for log in logs}) == 1
    return f"{label}, {len(logs)} {'seeds' if alike else 'runs'}"


def line_of(group: Group, name: str, axis: Axis, options: PlotOptions) -> Line | None:
    """A curve of a group; None if none of its logs has it. Only training curves are smoothed."""
    curves = [curve for log in group.logs if (curve := log.curve(name, axis)).x]
    if not curves:
        return None
    weight = options.smooth if name.startswith("train/") and name != "train/lr" else 0.0
    smooth = [Curve(curve.x, smoothed(curve.y, weight)) if weight else curve for curve in curves]
    if len(curves) == 1:
        return Line(smooth[0], curves[0])
    grid = _common_places(curves)
    rows = np.array([np.interp(grid, curve.x, curve.y) for curve in smooth])
    mean = rows.mean(axis=0)
    spread = rows.std(axis=0, ddof=1)
    low, high = (mean - spread, mean + spread) if options.seeds == "std" else (rows.min(axis=0), rows.max(axis=0))
    raw = np.mean([np.interp(grid, curve.x, curve.y) for curve in curves], axis=0)
    return Line(Curve(grid, mean.tolist()), Curve(grid, raw.tolist()), low.tolist(), high.tolist())


def _common_places(curves: Sequence[Curve]) -> list[float]:
    """The places of all curves, as far as every one of them goes: a mean of fewer would jump."""
    begin, end = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    found = sorted({x for curve in curves for x in curve.x if begin <= x <= end})
    return found or [begin]
