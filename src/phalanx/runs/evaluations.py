"""Evaluations of a run, by the trainers or by a separate evaluator: all of them, the best, the newest."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from phalanx.runs.event_schema import read_record
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, Eval, Event, Record, end_of_lines

_MOST_BYTES = 1 << 24  # that are read at a time
_LATER = ("metrics", "metric")  # older runs lack these


def evaluations(records: Iterable[Record]) -> list[Eval]:
    """The evaluations among a run's events."""
    names = [field.name for field in fields(Eval)]
    found = [record for record in records if record["kind"] == Eval.kind]
    return [Eval(**{name: record[name] for name in names if name not in _LATER or name in record}) for record in found]


def best_of(found: Iterable[Eval]) -> Eval | None:
    """The evaluation with the highest top-1 or mAP; the earliest of equals."""
    return max(found, key=lambda one: (one.score, -one.step), default=None)


class EvaluatorResults:
    """New results of a separate evaluator, read from its events file by rank 0.

    `show` prints one and writes it to log.txt. The evaluator has written the event itself.
    """

    def __init__(self, run: Path, show: Callable[[Event], None]) -> None:
        self.show = show
        self._path = run / EVALUATOR_EVENTS_FILE
        self._position = end_of_lines(self._path) if self._path.is_file() else 0
        self.last_step = 0  # the newest step evaluated; the evaluator goes in order

    def poll(self) -> list[Eval]:
        """The evaluations since the last call."""
        if not self._path.is_file() or self._path.stat().st_size <= self._position:
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            read = file.read(_MOST_BYTES)
        lines = read.rpartition(b"\n")[0]
        if len(read) == _MOST_BYTES and not lines:  # a broken file: that much of it is no event
            self._position += len(read)
        self._position += len(lines) + bool(lines)
        found = [one for one in evaluations(_readable(lines)) if one.step > self.last_step]
        self.last_step = max([self.last_step, *(one.step for one in found)])
        return found


def _readable(lines: bytes) -> Iterator[Record]:
    """The events in these lines. A damaged one does not end the training that only shows them."""
    for line in lines.splitlines():
        with contextlib.suppress(ValueError):
            yield read_record(line)
