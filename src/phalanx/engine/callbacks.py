"""The user's callbacks: called when a run starts, steps, ends an epoch, evaluates, saves and ends.

A callback is a class with any of these methods. Each gets the `CallbackRun` first:

    on_start(run)             before the first step of this process
    on_step(run, numbers)     after each step: loss, top1 and topk of the step, lr
    on_epoch(run, numbers)    after each epoch: loss, top1 and topk of training
    on_evaluated(run, numbers)  after each evaluation: loss, top1, topk and the user's own metrics
    on_saved(run, path)       after each checkpoint
    on_end(run)               after the last step, or after the run was stopped

Numbers by name that a method returns become a `callback` event, a text becomes a note. The first worker calls it; all
workers do where the class says `every_rank = True`, and the first one's numbers are logged. `run.stop(reason)` ends
training after the next step, on all workers. `state()` returns what JSON can hold, which a checkpoint keeps, and
`load(state)` gets it back when the run is resumed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from phalanx.config.code import Entry, name_of, options_of
from phalanx.config.schema import RunConfig
from phalanx.custom import load
from phalanx.custom.construct import construct
from phalanx.errors import UserError
from phalanx.runs import events as ev

METHODS = ("on_start", "on_step", "on_epoch", "on_evaluated", "on_saved", "on_end")


@dataclass
class CallbackRun:
    """The run, as a callback sees it."""

    folder: Path
    config: RunConfig
    classes: list[str]
    model: nn.Module  # not to be changed
    rank: int
    workers: int
    total_steps: int
    steps_per_epoch: int
    step: int = 0  # that were made
    stop_reason: str = ""

    @property
    def epoch(self) -> float:
        """Epochs that were trained, with the fraction."""
        return self.step / self.steps_per_epoch

    def stop(self, reason: str) -> None:
        """End training after the next step. The run counts as finished, and can be resumed."""
        self.stop_reason = self.stop_reason or reason


@dataclass
class Callbacks:
    """All callbacks of a run, in the order of the configuration."""

    run: CallbackRun | None = None
    called: list[tuple[str, Any]] = field(default_factory=list)  # by this worker
    emit: Callable[[ev.Event], None] = lambda event: None
    agreed: bool = False  # whether all workers know that training is to end

    @property
    def wants_stop(self) -> bool:
        """Whether a callback of this worker has asked for the end."""
        return self.run is not None and bool(self.run.stop_reason)

    def call(self, method: str, step: int, *arguments: Any) -> None:
        """Call a method of all callbacks that have it."""
        if self.run is None:
            return
        self.run.step = step
        for name, callback in self.called:
            function = getattr(callback, method, None)
            if function is not None:
                self._log(name, method, step, function(self.run, *arguments))

    def agree(self, total: Callable[[list[float]], list[float]]) -> bool:
        """Whether a callback of any worker has asked for the end. All workers call this; `total` adds over them."""
        if self.run is not None and not self.agreed:
            self.agreed = total([float(self.wants_stop)])[0] > 0
        return self.agreed

    def reason(self, step: int) -> str:
        """Why training ends early, for the log."""
        asked = self.run.stop_reason if self.run is not None else ""
        return f"training ends early at step {step}: {asked or 'a callback of another worker asked for it'}"

    def state(self) -> dict[str, Any]:
        """What the callbacks want to have in a checkpoint, by name."""
        found = {}
        for name, callback in self.called:
            if hasattr(callback, "state"):
                found[name] = callback.state()
                _refuse_no_json(name, found[name])
        return found

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what a checkpoint holds."""
        for name, callback in self.called:
            if name in saved and hasattr(callback, "load"):
                callback.load(saved[name])

    def _log(self, name: str, method: str, step: int, returned: Any) -> None:
        if returned is None:
            return
        if isinstance(returned, str):
            self.emit(ev.Note(step, returned))
            return
        try:
            values = {str(key): float(value) for key, value in dict(returned).items()}
        except (TypeError, ValueError) as error:
            raise UserError(
                f"callbacks: {name}.{method} returned {returned!r}",
                why="what a callback returns is logged: numbers by name, or a text",
                remedy="return a dictionary such as {'weight_norm': 3.2}, a text, or nothing",
            ) from error
        self.emit(ev.Callback(step, name, method, values))


def make_callbacks(entries: Sequence[Entry], run: CallbackRun, emit: Callable[[ev.Event], None]) -> Callbacks:
    """The callbacks of a run, those that this worker calls."""
    called: list[tuple[str, Any]] = []
    for entry in entries:
        reference = name_of(entry)
        name, value = reference.rpartition(":")[2], load(reference)
        made = construct(value, reference, "options", {}, options_of(entry)) if callable(value) else value
        if not any(hasattr(made, method) for method in METHODS):
            raise UserError(
                f"callbacks: {reference} has none of the methods that are called",
                why=f"these are {', '.join(METHODS)}",
                remedy="write a class with at least one of them",
            )
        if any(name == other for other, _ in called):
            name = f"{name}-{len(called) + 1}"
        if run.rank == 0 or getattr(made, "every_rank", False):
            called.append((name, made))
    return Callbacks(run if entries else None, called, emit)


def _refuse_no_json(name: str, state: Any) -> None:
    try:
        json.dumps(state)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"callbacks: the state of {name} cannot be saved",
            why=f"JSON cannot hold it: {error}",
            remedy="return numbers, texts, lists and dictionaries",
        ) from error
