"""What the person in front of the screen sees: a live bar on a terminal, plain lines anywhere else."""

from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from phalanx.observe.lines import LineSink, percent, sentence
from phalanx.runs import events as ev
from phalanx.runs.events import Event


@dataclass(frozen=True)
class Tick:
    """Progress after each step; too frequent for an event."""

    step: int
    total_steps: int
    epoch: int
    batch: int
    batches: int
    loss: float
    top1: float
    samples_per_s: float


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
    """A bar per epoch with loss, accuracy, speed and the time that the whole run still needs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("run ends in"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, ev.Step | ev.Epoch | ev.DataService):
            return  # the bar shows these
        text = sentence(event)
        if text is None:
            return
        style = "bold" if isinstance(event, ev.Eval) and event.best else ""
        self._console.print(Text(text, style=style))

    def tick(self, tick: Tick) -> None:
        if self._task is None:
            self._progress.start()
        self._advance(tick)

    def _advance(self, tick: Tick) -> None:
        if self._task is None:
            self._task = self._progress.add_task("", total=tick.total_steps, completed=tick.step - 1, numbers="")
        self._progress.update(
            self._task,
            completed=tick.step,
            description=f"epoch {tick.epoch} {tick.batch}/{tick.batches}",
            numbers=f"loss {tick.loss:.3f}  top-1 {percent(tick.top1)}  {tick.samples_per_s:.0f} samples/s",
        )

    def evaluating(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=f"validation {done}/{total}")

    def close(self) -> None:
        self._progress.stop()


def make_display(console: Console, worker: int | None = None) -> Display:
    """`worker` is this one's rank, where there are several."""
    if console.is_jupyter:
        from phalanx.observe.notebook import NotebookDisplay

        return NotebookDisplay(console)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console, worker)
