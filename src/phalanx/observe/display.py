"""What the screen shows while a run trains: a live view of the job on a terminal, plain lines anywhere else."""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from phalanx.observe.eval_table import EvalTable, TrainingScores
from phalanx.observe.job_facts import listed, roles_of
from phalanx.observe.job_view import (
    JobView,
    ScoreView,
    WorkView,
    mean_times,
    others_in,
    split_times,
    total_speed,
    workers_in,
)
from phalanx.observe.lines import NAMES, LineSink, accuracies, checkpoint_line, percent, sentence
from phalanx.observe.live import LiveLines, is_ascii, is_live
from phalanx.observe.progress import Lines
from phalanx.observe.slowness import Slowness
from phalanx.observe.tables import print_text
from phalanx.observe.time_left import Pace
from phalanx.observe.view_lines import view_lines
from phalanx.runs import events as ev
from phalanx.runs.events import TIMES, Event, Record, record_of
from phalanx.runs.inside import json_inside
from phalanx.runs.score import F1_MICRO, TOP1
from phalanx.signals import write_line

_MOST_POINTS = 400  # of a curve
_JOB_EVERY_S = 2.0  # between looks at job.json, which the launcher writes as often


@dataclass(frozen=True)
class Tick:
    """Progress after each step; too frequent for an event."""

    step: int
    total_steps: int
    epoch: int
    batch: int
    batches: int
    loss: float
    accuracy: float
    samples_per_s: float  # of all workers, as far as this one can tell
    metric: str = TOP1  # what the accuracy is: f1_micro where a sample may have several labels
    topk: float | None = None
    k: int = 1
    times: tuple[float, ...] = ()  # seconds of a step lately, in the order of TIMES


class Display(Protocol):
    """A sink that also takes ticks."""

    def take(self, event: Event) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def working(self, what: str, done: int, total: int) -> None: ...

    def tell(self, text: str) -> None: ...

    def close(self) -> None: ...


class PlainDisplay(LineSink):
    """Lines, for logs, pipes and batch systems."""

    def __init__(self, console: Console, worker: int | None = None) -> None:
        super().__init__(lambda text: print_text(console, text), worker)
        self._console = console
        self._work: Lines | None = None

    def tick(self, tick: Tick) -> None:
        """The step events say enough."""

    def working(self, what: str, done: int, total: int) -> None:
        """Say how far a long validation is."""
        if self._work is None or self._work.what != what or done < self._work.done:  # another one begins
            self._work = Lines(self._console, what, total)
        self._work.reach(done)

    def tell(self, text: str) -> None:
        """Print a line. A signal handler may call this."""
        write_line(text)


class LiveDisplay:
    """The view of the job, and above it a table with a row for each evaluation.

    A tick only notes the numbers: they are drawn by a thread, four times a second.
    """

    def __init__(self, console: Console, job: Path | None = None) -> None:
        """`job` is the run's folder, if a launcher keeps job.json there."""
        self._console, self._job_at = console, job
        self._table = EvalTable()
        self._pace, self._began = Pace(), time.monotonic()
        self._last: Tick | None = None
        self._step: Record | None = None  # the last step event
        self._slowness = Slowness()
        self._training: deque[float] = deque(maxlen=_MOST_POINTS)
        self._evaluations: list[ev.Eval] = []
        self._work: tuple[WorkView, float] | None = None  # what happens between steps, and since when
        self._job: dict[str, Any] | None = None  # job.json, while its job runs
        self._job_read_at, self._last_fault_t = -_JOB_EVERY_S, 0.0
        self._told: SimpleQueue[str] = SimpleQueue()  # lines that are not printed yet
        self._live = LiveLines(console, self._draw, before=self._print_told)  # draws at once

    def take(self, event: Event) -> None:
        """Show an event: steps in the view, the others as lines above it."""
        if isinstance(event, ev.Step):
            self._step = record_of(event)
            self._training.append(event.metrics.get(F1_MICRO, 0.0) if event.top1 is None else event.top1)
            self._note_ranks(event.ranks)
        elif isinstance(event, ev.Eval):
            self._evaluated(event)
        elif isinstance(event, ev.Checkpoint):
            self._pace.pause()
            self._console.print(Text(checkpoint_line(event), style="dim"), soft_wrap=True)
        elif not isinstance(event, ev.Epoch | ev.DataService | ev.System):
            text = sentence(event)
            if text is not None:
                print_text(self._console, text, "yellow" if isinstance(event, ev.BadImage | ev.Stop) else "")

    def _note_ranks(self, ranks: list[dict[str, float]]) -> None:
        if len(ranks) != len(self._slowness.ranks):  # another number of workers
            self._slowness = Slowness()
        if ranks:
            self._slowness.add(ranks)

    def _evaluated(self, event: ev.Eval) -> None:
        self._work = None
        self._evaluations = [*self._evaluations[-_MOST_POINTS:], event]
        # With an evaluator, training has gone on since the step that was evaluated.
        now = self._last if self._last is not None and self._last.step == event.step else None
        training = TrainingScores(now.loss, now.accuracy, now.topk) if now else None
        for row in self._table.rows(event, training, self._console.width):
            self._console.print(row, soft_wrap=True)

    def tick(self, tick: Tick) -> None:
        """Note how far training is."""
        self._advance(tick)
        if not self._live.is_started:
            self._live.start()

    def _advance(self, tick: Tick) -> None:
        self._last, self._work = tick, None
        self._pace.add(tick.step, time.monotonic())

    def working(self, what: str, done: int, total: int) -> None:
        """Note how far something between steps is."""
        before = self._work
        since = before[1] if before is not None and before[0].what == what else time.monotonic()
        left = (time.monotonic() - since) / done * (total - done) if done else None
        self._pace.pause()
        self._work = WorkView(what, done, total, left), since

    def tell(self, text: str) -> None:
        """Print a line above the view. A signal handler may call this: it may have interrupted other printing."""
        if self._live.is_started:
            self._told.put(text)
        else:
            write_line(text)

    def close(self) -> None:
        """The view goes away; what was printed stays."""
        self._live.stop()

    def _draw(self, columns: int, rows: int) -> list[Text]:
        tick = self._last
        return view_lines(self._view(tick), columns, rows, ascii_only=is_ascii(self._console)) if tick else []

    def _view(self, tick: Tick) -> JobView:
        roles = roles_of(self._job, self._step)
        workers = workers_in(roles)
        return JobView(
            step=tick.step,
            total_steps=tick.total_steps,
            epoch=tick.epoch,
            batch=tick.batch,
            batches=tick.batches,
            epoch_left_s=self._pace.left_s(tick.batches - tick.batch),
            left_s=self._pace.left_s(tick.total_steps - tick.step, pauses=True),
            taken_s=time.monotonic() - self._began,
            work=self._work[0] if self._work is not None else None,
            training=ScoreView(_training_text(tick), (*self._training, tick.accuracy), f"loss {tick.loss:.4f}"),
            validation=validation_view(self._evaluations),
            samples_per_s=(total_speed(workers) if len(workers) > 1 else None) or tick.samples_per_s,
            times=mean_times(workers) or split_times(dict(zip(TIMES, tick.times, strict=False))),
            workers=workers,
            slowest=self._slowness.slowest(),
            others=others_in([role for role in roles if role.get("fate") != "running"]),
        )

    def _print_told(self) -> None:
        self._look_at_job()
        while not self._told.empty():
            print_text(self._console, self._told.get(), "yellow")

    def _look_at_job(self) -> None:
        """Read job.json now and then: states of roles, speeds of workers that are not in lockstep, faults.

        It tells the faults that training survives: the launcher cannot print above this view.
        """
        if self._job_at is None or time.monotonic() - self._job_read_at < _JOB_EVERY_S:
            return
        self._job_read_at = time.monotonic()
        try:
            job = json_inside(self._job_at, "job.json")
        except ValueError:
            job = None
        self._job = job if job and job.get("state") != "ended" else None
        for fault in listed(self._job, "faults"):
            t = fault.get("t")
            if fault.get("told") is False and isinstance(t, int | float) and t > self._last_fault_t:
                self._last_fault_t = t
                self._told.put(str(fault.get("text")))


def _training_text(tick: Tick) -> str:
    if tick.metric == TOP1:
        return accuracies(tick.accuracy, tick.topk, tick.k, between="  ")
    return f"{NAMES[tick.metric]} {percent(tick.accuracy)}"


def validation_view(evaluations: list[ev.Eval]) -> ScoreView | None:
    """The last of some evaluations, their curve, and the best."""
    if not evaluations:
        return None
    last, best = evaluations[-1], max(evaluations, key=lambda one: one.score)
    text = accuracies(last.top1, last.topk, last.k, between="  ", metrics=last.metrics)
    return ScoreView(text, [one.score for one in evaluations], f"best {percent(best.score)}")


def make_display(console: Console, worker: int | None = None, run: Path | None = None) -> Display:
    """The display for a console. `worker` is the rank of this worker, and `run` the run's folder, with several."""
    if console.is_jupyter:
        from phalanx.observe.notebook import NotebookDisplay

        return NotebookDisplay(console)
    return LiveDisplay(console, run) if is_live(console) else PlainDisplay(console, worker)
