"""Evaluations of a run, whoever made them: the best so far, and those of the evaluator as they come."""

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

from phalanx.runs.events import EVALUATOR_EVENTS_FILE, Eval, Event, Record


def evaluations(records: Iterable[Record]) -> list[Eval]:
    """The evaluations among a run's events."""
    names = [field.name for field in fields(Eval)]
    found = [record for record in records if record["kind"] == Eval.kind]
    return [Eval(**{name: record[name] for name in names if name != "metrics" or name in record}) for record in found]


def best_of(found: Iterable[Eval]) -> Eval | None:
    """The most accurate; of equals the first."""
    return max(found, key=lambda one: (one.top1, -one.step), default=None)


class EvaluatorNews:
    """What the evaluator finds from now on, for the trainer that keeps the run's folder.

    `tell` puts it on the screen and into the log. The events have it already.
    """

    def __init__(self, run: Path, tell: Callable[[Event], None]) -> None:
        self.tell = tell
        self._path = run / EVALUATOR_EVENTS_FILE
        self._position = self._path.read_bytes().rfind(b"\n") + 1 if self._path.is_file() else 0
        self.last_step = 0  # that was evaluated; the evaluator goes from one to the next

    def take(self) -> list[Eval]:
        """The evaluations since the last call."""
        if not self._path.is_file() or self._path.stat().st_size <= self._position:
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            lines = file.read().rpartition(b"\n")[0]
        self._position += len(lines) + bool(lines)
        found = [one for one in evaluations(map(json.loads, lines.splitlines())) if one.step > self.last_step]
        self.last_step = max([self.last_step, *(one.step for one in found)])
        return found
