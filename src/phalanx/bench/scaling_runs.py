"""Speed and parts of the step time, from the files of training runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phalanx.bench.scaling_plan import WARM_UP
from phalanx.bench.training import Trained, TrainingFailed
from phalanx.runs.events import Record

PARTS = ("data", "compute", "exchange", "update")
Marks = list[tuple[float, int]]  # when which step was done


@dataclass(frozen=True)
class MeasuredRun:
    """Speed of a job, or of several trainers together; times are seconds of a step, means over workers."""

    images_per_s: float
    step_s: float
    parts: dict[str, float]
    waiting_s: float = 0.0  # of the exchange: until the slowest worker was there too

    @property
    def other_s(self) -> float:
        """Between steps: logging, events."""
        return max(0.0, self.step_s - sum(self.parts.values()))


def run_of_job(trained: Trained, batch_size: int, workers: int) -> MeasuredRun:
    """The speed of a job. Workers of async and ssp jobs have their own steps, from the server's log."""
    events = _counted(trained)
    marks = _marks(trained)
    parts, waiting = _parts(events)
    paces = _paces(trained)
    if paces:
        images_per_s = batch_size * rate_together(list(paces.values()))
        return MeasuredRun(images_per_s, batch_size * workers / images_per_s, parts, waiting)
    steps_per_s = _rate(marks)
    return MeasuredRun(batch_size * workers * steps_per_s, 1 / steps_per_s, parts, waiting)


def run_of_independents(trained: Sequence[Trained], batch_size: int, *, same_clock: bool) -> MeasuredRun:
    """The speed of independent trainers that run at the same time."""
    tracks = [_marks(each) for each in trained]
    steps_per_s = rate_together(tracks) if same_clock else sum(map(_rate, tracks))
    each = [_parts(_counted(one))[0] for one in trained]
    parts = {name: sum(one[name] for one in each) / len(each) for name in PARTS}
    return MeasuredRun(batch_size * steps_per_s, len(trained) / steps_per_s, parts)


def rate_together(tracks: Sequence[Marks]) -> float:
    """Steps a second of all workers while all ran; over a worker's whole time if it has too few steps then."""
    begin, end = max(track[0][0] for track in tracks), min(track[-1][0] for track in tracks)
    total = 0.0
    for track in tracks:
        inside = [mark for mark in track if begin <= mark[0] <= end]
        total += _rate(inside if len(inside) > 1 and inside[-1][0] > inside[0][0] else track)
    return total


def _rate(marks: Marks) -> float:
    (begin, first), (end, last) = marks[0], marks[-1]
    return (last - first) / max(1e-3, end - begin)  # events are stamped to the millisecond


def _marks(trained: Trained) -> Marks:
    marks = [(record["t"], record["step"]) for record in trained.steps()]
    if len(marks) < 2:
        raise TrainingFailed(f"{trained.folder.name} has too few steps to measure")
    return marks


def _counted(trained: Trained) -> list[tuple[int, Record]]:
    """Step events after the first, each with the number of steps that it is the mean of."""
    events = trained.steps()
    return [(after["step"] - before["step"], after) for before, after in pairwise(events)]


def _parts(events: Sequence[tuple[int, Record]]) -> tuple[dict[str, float], float]:
    """Seconds of a step by part, and those of the exchange that workers waited for the slowest."""
    total = max(1, sum(steps for steps, _ in events))
    parts = dict.fromkeys(PARTS, 0.0)
    waiting = 0.0
    for steps, event in events:
        ranks = event["ranks"] or [event]
        for name in PARTS:
            parts[name] += steps / total * sum(rank[f"{name}_s"] for rank in ranks) / len(ranks)
        work = [rank["data_s"] + rank["compute_s"] for rank in ranks]
        waited = sum(min(rank["exchange_s"], max(work) - own) for rank, own in zip(ranks, work, strict=True))
        waiting += steps / total * waited / len(ranks)
    return parts, waiting


def _paces(trained: Trained) -> dict[int, Marks]:
    """By worker, the times of its steps. Only async and ssp servers log the worker of a step."""
    paces: dict[int, Marks] = {}
    log = trained.folder / "logs" / "server-0.jsonl"
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else []:
        record = json.loads(line)
        if record["kind"] == "update" and "worker" in record:
            paces.setdefault(record["worker"], []).append((record["time"], record["step"]))
    return {worker: marks[WARM_UP - 1 :] for worker, marks in paces.items() if len(marks) > WARM_UP}
