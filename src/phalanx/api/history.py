"""The curves of a run, by name: `train/loss`, `val/top1` and so on."""

from pathlib import Path
from typing import NamedTuple

from phalanx.errors import UserError, nearest
from phalanx.runs import events as ev
from phalanx.runs.events import Record, read_events

# name → the kind of event that has it, and its field there
CURVES = {
    "train/loss": (ev.Step.kind, "loss"),
    "train/top1": (ev.Step.kind, "top1"),
    "train/topk": (ev.Step.kind, "topk"),
    "train/lr": (ev.Step.kind, "lr"),
    "train/grad_norm": (ev.Step.kind, "grad_norm"),
    "val/loss": (ev.Eval.kind, "loss"),
    "val/top1": (ev.Eval.kind, "top1"),
    "val/topk": (ev.Eval.kind, "topk"),
    "samples_per_s": (ev.Step.kind, "samples_per_s"),
}


class History(NamedTuple):
    """A curve: steps, and the value at each. `plt.plot(*history)` draws it.

    >>> steps, values = phalanx.load("runs/digits").history("val/top1")
    >>> len(steps) == len(values)
    True
    """

    steps: list[int]
    values: list[float]


def read_history(run: Path, name: str) -> History:
    """One curve of a run. What a resume superseded is left out.

    Your own metrics are `val/NAME`, and numbers that your callbacks return `CALLBACK/NAME`.
    """
    records = read_events(run)
    if name in CURVES:
        kind, field = CURVES[name]
        points = [(record["step"], record.get(field)) for record in records if record["kind"] == kind]
    else:
        own = _own_curves(records)
        if name not in own:
            raise UserError(f"a run has no curve {name!r}", why="unknown name", remedy=nearest(name, [*CURVES, *own]))
        points = own[name]
    # An evaluator's events may come later than steps after them.
    chosen = sorted(((step, value) for step, value in points if value is not None), key=lambda point: point[0])
    return History([step for step, _ in chosen], [value for _, value in chosen])


def _own_curves(records: list[Record]) -> dict[str, list[tuple[int, float | None]]]:
    """The numbers of the user's own code and of several labels, by the name of the curve."""
    found: dict[str, list[tuple[int, float | None]]] = {}
    for record in records:
        if record["kind"] == ev.Eval.kind:
            numbers = {f"val/{name}": value for name, value in record.get("metrics", {}).items()}
        elif record["kind"] == ev.Step.kind:
            numbers = {f"train/{name}": value for name, value in record.get("metrics", {}).items()}
        elif record["kind"] == ev.Callback.kind:
            numbers = {f"{record['name']}/{name}": value for name, value in record["values"].items()}
        else:
            continue
        for name, value in numbers.items():
            found.setdefault(name, []).append((record["step"], value))
    return found
