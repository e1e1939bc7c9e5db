"""The curves of a run, by name: `train/loss`, `val/top1` and so on."""

from pathlib import Path
from typing import NamedTuple

from phalanx.errors import UserError, nearest
from phalanx.runs import events as ev
from phalanx.runs.events import read_events

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
    """One curve of a run. What a resume superseded is left out."""
    if name not in CURVES:
        raise UserError(f"a run has no curve {name!r}", why="unknown name", remedy=nearest(name, CURVES))
    kind, field = CURVES[name]
    chosen = [record for record in read_events(run) if record["kind"] == kind and record.get(field) is not None]
    chosen.sort(key=lambda record: record["step"])  # an evaluator's events may come later than steps after them
    return History([record["step"] for record in chosen], [record[field] for record in chosen])
