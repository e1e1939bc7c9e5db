"""Learning curves as numbers: of our runs, from their events, and in one form that other systems' logs share.

Curves are named as in `Run.history`: train/loss, train/top1, train/lr, val/loss, val/top1, val/NAME. Accuracies and
mAP are in percent. Each point knows its step, epoch and time, as far as its log does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from phalanx.errors import UserError
from phalanx.runs import events as ev
from phalanx.runs.events import Record, read_events
from phalanx.runs.score import MAP

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = ("epoch", "step", "time")


class NothingToDraw(UserError):
    """A run without a step or an evaluation."""


class Curve(NamedTuple):
    """A curve on one axis."""

    x: list[float]
    y: list[float]


@dataclass
class Series:
    """The points of one curve. A place is None where the log does not tell it."""

    values: list[float] = field(default_factory=list)
    places: dict[Axis, list[float | None]] = field(default_factory=lambda: {axis: [] for axis in AXES})

    def add(
        self, value: float, *, step: float | None = None, epoch: float | None = None, time: float | None = None
    ) -> None:
        self.values.append(value)
        self.places["step"].append(step)
        self.places["epoch"].append(epoch)
        self.places["time"].append(time)

    def on(self, axis: Axis) -> Curve:
        """The points that have a place on this axis, from left to right."""
        points = [(x, y) for x, y in zip(self.places[axis], self.values, strict=True) if x is not None]
        points.sort(key=lambda point: point[0])  # an evaluator's events may come later than steps after them
        return Curve([x for x, _ in points], [y for _, y in points])

    def missing(self, axis: Axis) -> int:
        """Points that have no place on this axis."""
        return self.places[axis].count(None)


@dataclass
class Log:
    """The curves of one run, ours or another system's."""

    label: str
    series: dict[str, Series] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)  # panels beyond the usual ones, such as the user's own metrics
    notes: list[str] = field(default_factory=list)
    recipe: str = ""  # the settings of a run of ours without its seed: equal for runs that differ in nothing else

    def curve(self, name: str, axis: Axis) -> Curve:
        found = self.series.get(name)
        return found.on(axis) if found else Curve([], [])

    def add(
        self,
        name: str,
        value: float,
        *,
        step: float | None = None,
        epoch: float | None = None,
        time: float | None = None,
    ) -> None:
        self.series.setdefault(name, Series()).add(value, step=step, epoch=epoch, time=time)


def read_run(run: Path, label: str) -> Log:
    """The curves of a run of ours. Time is without the pauses before a resume."""
    records = read_events(run)
    starts = [record for record in records if record["kind"] == ev.Start.kind]
    if not starts:
        raise NothingToDraw(
            f"{run} has nothing to draw", why="it ended before training began", remedy="see its log.txt"
        )
    per_epoch = starts[-1]["steps_per_epoch"]
    log = Log(label)
    before = 0, 0.0  # step and time of the last step event: the steps of the next one follow it
    for record, time in zip(records, seconds_of_training(records), strict=True):
        if record["kind"] == ev.Step.kind:
            _add_values(log, "train", record, per_epoch, time, "loss", "top1")
            _add_rates(log, record, per_epoch, time, before)
        elif record["kind"] == ev.Eval.kind:
            _add_values(log, "val", record, per_epoch, time, "loss", "top1")
            if record.get("k", 1) > 1:
                _add(log, f"val/top{record['k']}", record["topk"], record["step"], per_epoch, time, 100)
            for name, value in record.get("metrics", {}).items():
                scale = 100 if name == MAP else 1
                _add(log, f"val/{name}", value, record["step"], per_epoch, time, scale)
                log.shown += [] if name in log.shown else [name]
        if record["kind"] == ev.Step.kind:
            before = record["step"], time
    return log


def _add_values(log: Log, part: str, record: Record, per_epoch: int, time: float, *fields: str) -> None:
    for name in fields:
        _add(log, f"{part}/{name}", record.get(name), record["step"], per_epoch, time, 100 if name == "top1" else 1)


def _add_rates(log: Log, record: Record, per_epoch: int, time: float, before: tuple[int, float]) -> None:
    """The rates of the first and of the last of some steps. Step N is the update after N others: they begin at 0."""
    first, first_time = before
    last = record["step"] - 1
    if record.get("lr_first") is not None and first < last:  # earlier versions did not report it
        _add(log, "train/lr", record["lr_first"], first, per_epoch, first_time)
    _add(log, "train/lr", record["lr"], last, per_epoch, time)


def _add(log: Log, name: str, value: float | None, step: int, per_epoch: int, time: float, scale: float = 1) -> None:
    if value is not None:  # it was not finite
        log.add(name, scale * value, step=step, epoch=step / per_epoch, time=time)


def seconds_of_training(records: Sequence[Record]) -> list[float]:
    """Seconds of training at each event of a run, without pauses before a resume."""
    places, elapsed, before = [], 0.0, None
    for record in records:
        if record["kind"] != ev.Start.kind and before is not None:
            elapsed += max(0.0, record["t"] - before)
        before = record["t"]
        places.append(elapsed)
    return places


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """An exponential moving average without the bias of its beginning, as TensorBoard draws it."""
    found, average = [], 0.0
    for count, value in enumerate(values, start=1):
        average = weight * average + (1 - weight) * value
        found.append(average / (1 - weight**count))
    return found


def run_names(runs: Sequence[Path]) -> list[str]:
    """Folder names, with their parents where two are equal."""
    names = [run.resolve().name for run in runs]
    doubled = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{run.resolve().parent.name}/{name}" if name in doubled else name
        for run, name in zip(runs, names, strict=True)
    ]
