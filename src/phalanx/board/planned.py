"""The plan of a run beside what was measured: plan.json, as `phalanx plan … --out RUN` leaves it."""

import statistics
from collections.abc import Mapping
from typing import Any

from phalanx.observe.history import History
from phalanx.runs.events import TIMES

# A part of a step as it is measured, and the planner's parts that make it up: who waits for others, exchanges.
_PARTS = {
    "data": ("input",),
    "compute": ("compute",),
    "exchange": ("exchange", "server", "waiting"),
    "update": ("update",),
}


def plan_beside_fact(plan: Mapping[str, Any], config: Mapping[str, Any], history: History) -> dict[str, Any]:
    """Rows of planned and measured numbers; or why these cannot be compared. `made_before`: before the run began."""
    made = plan.get("made")
    began = history.first_t
    before = made < began if isinstance(made, int | float) and began is not None else None
    about: dict[str, Any] = {
        "made": made,
        "made_before": before,
        "basis": str(plan.get("basis") or ""),
        "remark": "",
        "rows": [],
    }
    candidates = [one for one in (plan.get("best"), *_listed(plan.get("rows"))) if isinstance(one, dict)]
    found = next((one for one in candidates if _fits(one, plan, config, history)), None)
    if found is None:
        planned = ", ".join(dict.fromkeys(map(_arrangement, candidates))) or "nothing"
        return {**about, "remark": f"It was made for another job: {plan.get('model')}, {planned}."}
    return {**about, "rows": _rows(found, history)}


def _fits(one: Mapping[str, Any], plan: Mapping[str, Any], config: Mapping[str, Any], history: History) -> bool:
    """Whether a prediction is of the run's model, workers, images a step and way of exchange."""
    exchange, model = _section(config, "exchange"), _section(config, "model").get("name")
    workers = exchange.get("workers", 1)
    images = history.start().get("samples_per_step")
    if plan.get("model") != model or one.get("workers") != workers or images not in (None, one.get("images_per_step")):
        return False
    if workers == 1:
        return True
    names = ("method", "compress", *(("servers", "mode") if exchange.get("method") == "pserver" else ()))
    return all(one.get(name) == exchange.get(name) for name in names)


def _rows(planned: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """Of the measured steps, the first is left out: it includes what happens once."""
    columns = {name: list(history.columns[f"{name}_s"])[1:] for name in TIMES}
    whole = [sum(parts) for parts in zip(*columns.values(), strict=True)]
    step_s = _median(whole)
    images = history.start().get("samples_per_step")
    measured = {"images_per_s": images / step_s if step_s and images else None, "step_s": step_s}
    rows = [{"name": name, "planned": planned.get(name), "measured": value} for name, value in measured.items()]
    parts = planned.get("parts_s")
    if isinstance(parts, dict):
        for name, inner in _PARTS.items():
            found = [parts.get(part) for part in inner]
            expected = [one[0] for one in found if isinstance(one, list) and one and isinstance(one[0], int | float)]
            rows.append({"name": f"{name}_s", "planned": sum(expected), "measured": _median(columns[name])})
    return rows


def _median(values: list[float]) -> float | None:
    known = [value for value in values if value == value]
    return statistics.median(known) if known else None


def _arrangement(one: Mapping[str, Any]) -> str:
    count = one.get("workers")
    how = f"{count} workers {one.get('method')}" if count != 1 else "1 worker"
    return f"{how}, {one.get('images_per_step')} images a step"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}
