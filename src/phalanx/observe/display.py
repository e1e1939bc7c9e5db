"""What the screen shows while a run trains: a progress bar and a table on a terminal, plain lines anywhere else."""

import math
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from phalanx.observe.lines import NAMES, LineSink, accuracies, percent, sentence
from phalanx.runs import events as ev
from phalanx.runs.events import Event
from phalanx.runs.score import F1_MICRO, TOP1

_WIDTHS = {"epoch": 6, "step": 8}  # characters of the columns in the table of evaluations
_WIDTH = 12  # of the others: all fit into 80, with the mark of the best


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
    samples_per_s: float
    metric: str = TOP1  # what the accuracy is: f1_micro where a sample may have several labels


class Display(Protocol):
    """A sink that also takes ticks."""

    def take(self, event: Event) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def evaluating(self, done: int, total: int) -> None: ...

    def close(self) -> None: ...


class PlainDisplay(LineSink):
    """Lines, for logs, pipes and batch systems."""

    def __init__(self, console: Console, worker: int | None = None) -> None:
        super().__init__(lambda text: console.print(Text(text), soft_wrap=True), worker)

    def tick(self, tick: Tick) -> None:
        """The step events say enough."""

    def evaluating(self, done: int, total: int) -> None:
        """The evaluation event says enough."""


class LiveDisplay:
    """A progress bar, and above it a table with a row for each evaluation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=14),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("eta", style="dim"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last: Tick | None = None
        self._has_titles = False

    def take(self, event: Event) -> None:
        if isinstance(event, ev.Step | ev.Epoch | ev.DataService):
            return  # the bar shows these
        if isinstance(event, ev.Eval):
            self._evaluated(event)
            return
        text = sentence(event)
        if text is not None:
            self._console.print(Text(text, style="yellow" if isinstance(event, ev.BadImage | ev.Stop) else ""))

    def _evaluated(self, event: ev.Eval) -> None:
        # With an evaluator, training has gone on since the step that was evaluated.
        now = self._last if self._last is not None and self._last.step == event.step else None
        mean_ap = accuracies(event.top1, None, 1, metrics=event.metrics).removeprefix("mAP ")
        cells = {
            "epoch": f"{event.epoch:.4g}",
            "step": f"{event.step:,}",
            "train loss": f"{now.loss:.4f}" if now else "-",
            f"train {'F1' if event.top1 is None else 'top-1'}": percent(now.accuracy) if now else "-",
            "val loss": f"{event.loss:.4f}",
            **({"val mAP": mean_ap} if event.top1 is None else {"val top-1": percent(event.top1)}),
            **({f"val top-{event.k}": percent(event.topk)} if event.k > 1 and event.topk is not None else {}),
            **({"val F1": percent(event.metrics.get(F1_MICRO, 0.0))} if event.top1 is None else {}),
        }
        if not self._has_titles:
            self._has_titles = True
            self._console.print(Text("".join(title.rjust(_WIDTHS.get(title, _WIDTH)) for title in cells), style="dim"))
        row = "".join(cell.rjust(_WIDTHS.get(title, _WIDTH)) for title, cell in cells.items())
        self._console.print(Text(f"{row}  best" if event.best else row, style="bold" if event.best else ""))

    def tick(self, tick: Tick) -> None:
        if self._task is None:
            self._progress.start()
        self._advance(tick)

    def _advance(self, tick: Tick) -> None:
        self._last = tick
        if self._task is None:
            self._task = self._progress.add_task("", total=tick.total_steps, completed=tick.step - 1, numbers="")
        accuracy = f"{NAMES[tick.metric]} {percent(tick.accuracy)}"
        self._progress.update(
            self._task,
            completed=tick.step,
            description=f"epoch {tick.epoch}/{math.ceil(tick.total_steps / tick.batches)} {tick.batch}/{tick.batches}",
            numbers=f"loss {tick.loss:.3f}  {accuracy}  {tick.samples_per_s:.0f} img/s",
        )

    def evaluating(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=f"validation {done}/{total}")

    def close(self) -> None:
        self._progress.stop()


def make_display(console: Console, worker: int | None = None) -> Display:
    """The display for a console. `worker` is the rank of this worker, if there are several."""
    if console.is_jupyter:
        from phalanx.observe.notebook import NotebookDisplay

        return NotebookDisplay(console)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console, worker)
