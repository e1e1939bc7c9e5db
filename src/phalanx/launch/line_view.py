"""The view of a job on the launching terminal, from the lines that its roles print: their files may be elsewhere."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.observe.job_facts import roles_of
from phalanx.observe.job_view import JobView, ScoreView, WorkerView, mean_times, others_in, total_speed, workers_in
from phalanx.observe.slowness import Slowest, Slowness
from phalanx.observe.time_left import Pace
from phalanx.runs.events import TIMES

_MOST_POINTS = 400  # of a curve
_SCORE = r"(?:top-1|mAP|F1) ([\d.]+|nan) %(?: top-\d+ [\d.]+ %)?"
# As observe/lines.py and observe/start_up.py write them.
_LENGTH = re.compile(r"^run: .* = ([\d,]+) steps?$")
_STEP = re.compile(rf"^epoch (\d+) batch (\d+)/(\d+) step (\d+): loss (\S+) ({_SCORE}) lr \S+ ([\d.]+) samples/s")
_EPOCH = re.compile(r"^epoch \d+ done: ")
_VALIDATION = re.compile(rf"^validation at step \d+: ({_SCORE}) loss ")


class LineView:
    """What the first trainer's lines and the records of all roles say. `roles` gives the records as data."""

    def __init__(self, roles: Callable[[], Sequence[dict[str, Any]]]) -> None:
        self._roles = roles
        self._pace, self._began = Pace(), time.monotonic()
        self._total = 0
        self._at = (0, 0, 0, 0)  # epoch, batch, batches, step
        self._speed: float | None = None
        self._training, self._validation = ScoreView(""), ScoreView("")

    @property
    def begun(self) -> bool:
        return self._at[3] > 0

    def take(self, line: str) -> bool:
        """Take a line of the first trainer. True if the view shows all that it says."""
        if found := _LENGTH.match(line):
            self._total = int(found[1].replace(",", ""))
        elif found := _VALIDATION.match(line):
            self._pace.pause()
            curve = (*self._validation.curve, float(found[2]))[-_MOST_POINTS:]
            self._validation = ScoreView(_spaced(found[1]), curve, f"best {max(curve):.2f} %")
        elif found := _STEP.match(line):
            epoch, batch, batches, step, loss, score, value, speed = found.groups()
            self._at = int(epoch), int(batch), int(batches), int(step)
            self._pace.add(int(step), time.monotonic())
            self._speed = float(speed)
            curve = (*self._training.curve, float(value))[-_MOST_POINTS:]
            self._training = ScoreView(_spaced(score), curve, f"loss {loss}")
            return True
        return _EPOCH.match(line) is not None

    def view(self) -> JobView:
        epoch, batch, batches, step = self._at
        roles = roles_of({"roles": list(self._roles())}, None)
        workers = workers_in(roles)
        return JobView(
            step=step,
            total_steps=self._total,
            epoch=epoch,
            batch=batch,
            batches=batches,
            epoch_left_s=self._pace.left_s(batches - batch),
            left_s=self._pace.left_s(self._total - step, pauses=True),
            taken_s=time.monotonic() - self._began,
            training=self._training,
            validation=self._validation if self._validation.text else None,
            samples_per_s=total_speed(workers) or self._speed,
            times=mean_times(workers),
            workers=workers,
            slowest=_slowest(workers),
            others=others_in([role for role in roles if role.get("fate") != "running"]),
        )


def _spaced(score: str) -> str:
    return score.replace(" % top", " %  top")


def _slowest(workers: Sequence[WorkerView]) -> Slowest | None:
    """Of the latest steps."""
    rows = [{f"{name}_s": worker.times.get(name, 0.0) for name in TIMES} for worker in workers if worker.times]
    slowness = Slowness()
    if len(rows) == len(workers):
        slowness.add(rows)
    return slowness.slowest()
