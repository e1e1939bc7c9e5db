"""Curves of a run for the screen: as many points as it has pixels, however many steps there are."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.observe.curves import AXES, Axis, smoothed
from phalanx.observe.history import History

Values = npt.NDArray[np.float64]
MOST_POINTS = 4000
# curve → column, and its scale
_OF_STEPS = {
    "train/top1": ("top1", 100.0),
    "train/loss": ("loss", 1.0),
    "train/lr": ("lr", 1.0),
    "train/grad_norm": ("grad_norm", 1.0),
    "speed/images_per_s": ("samples_per_s", 1.0),
    "time/data": ("data_s", 1000.0),
    "time/compute": ("compute_s", 1000.0),
    "time/exchange": ("exchange_s", 1000.0),
    "time/update": ("update_s", 1000.0),
    "bytes/sent": ("bytes_sent", 1.0),
    "bytes/received": ("bytes_received", 1.0),
    "async/staleness": ("staleness", 1.0),
}
_SMOOTHED = ("train/top1", "train/loss", "train/grad_norm", "speed/images_per_s")


def curves_of(
    history: History,
    axis: str,
    *,
    first: float | None = None,
    last: float | None = None,
    points: int = 800,
    smooth: float = 0.0,
) -> dict[str, Any]:
    """Every curve between two places of an axis, as lists of x and y."""
    chosen: Axis = next((one for one in AXES if one == axis), "step")
    places = _places(history, chosen)
    found = {}
    for name, (column, scale) in _OF_STEPS.items():
        values = _array(history.columns[column]) * scale
        if np.isfinite(values).any() and (values[np.isfinite(values)] != 0).any():
            found[name] = _drawn(places, values, first, last, points, smooth if name in _SMOOTHED else 0.0)
    for name, (x, y) in _of_evaluations(history, chosen).items():
        found[name] = _drawn(np.array(x), np.array(y), first, last, points, 0.0)
    return {"axis": chosen, "series": found, "last_step": history.last_step}


def _array(column: "array[float]") -> Values:
    return np.array(column, dtype=np.float64)  # a copy: the column may grow


def _places(history: History, axis: Axis) -> Values:
    if axis == "time":
        places = _array(history.columns["t"]) - (history.first_t or 0.0)
        for ended, pause in history.pauses:
            places -= np.where(_array(history.columns["t"]) >= ended, pause, 0.0)
        return places
    steps = _array(history.columns["step"])
    return steps / history.start().get("steps_per_epoch", 1) if axis == "epoch" else steps


def _of_evaluations(history: History, axis: Axis) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    per_epoch = history.start().get("steps_per_epoch", 1)
    for one in history.evaluations():
        step = int(one["step"])
        place = {"step": float(step), "epoch": step / per_epoch, "time": history.seconds_at(one["t"])}[axis]
        values = {"top1": (one["top1"], 100.0), "loss": (one["loss"], 1.0)}
        if one.get("k", 1) > 1:
            values[f"top{one['k']}"] = one["topk"], 100.0
        values |= {name: (value, 100.0 if name == "mAP" else 1.0) for name, value in one.get("metrics", {}).items()}
        for name, (value, scale) in values.items():
            if isinstance(value, int | float):
                x, y = found.setdefault(f"val/{name}", ([], []))
                x.append(place)
                y.append(scale * value)
    return found


def _drawn(
    places: Values, values: Values, first: float | None, last: float | None, points: int, smooth: float
) -> dict[str, list[float]]:
    finite = np.isfinite(values) & np.isfinite(places)
    places, values = places[finite], values[finite]
    if smooth > 0:
        values = np.array(smoothed(values.tolist(), smooth))
    # One point beyond each end, so that lines go on to the edge.
    begin = 0 if first is None else max(0, int(np.searchsorted(places, first)) - 1)
    end = len(places) if last is None else min(len(places), int(np.searchsorted(places, last, "right")) + 1)
    x, y = downsampled(places[begin:end], values[begin:end], min(max(2, points), MOST_POINTS))
    return {"x": _rounded(x), "y": _rounded(y)}


def downsampled(x: Values, y: Values, points: int) -> tuple[Values, Values]:
    """At most `points` of these: the lowest and the highest of each stretch, so that no peak is lost."""
    if len(x) <= points:
        return x, y
    edges = np.linspace(0, len(x), points // 2 + 1).astype(np.int64)
    kept = np.empty(2 * (len(edges) - 1), np.int64)
    for number, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        part = y[begin:end]
        low, high = begin + int(part.argmin()), begin + int(part.argmax())
        kept[2 * number], kept[2 * number + 1] = min(low, high), max(low, high)
    kept[0], kept[-1] = 0, len(x) - 1
    kept = np.unique(kept)
    return x[kept], y[kept]


def _rounded(values: Values) -> list[float]:
    """Six digits: a screen shows no more, and each costs bytes."""
    return [float(f"{value:.6g}") if abs(value) < 1e6 else float(value) for value in values.tolist()]


def number_in(text: str | None, default: float | None = None) -> float | None:
    """A finite number of a query; the default where it is none."""
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def last_numbers(values: Sequence[float], count: int) -> list[float]:
    """A small picture of a curve for the table."""
    x = np.arange(len(values), dtype=np.float64)
    return _rounded(downsampled(x, np.array(values, dtype=np.float64), count)[1])
