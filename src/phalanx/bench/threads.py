"""`phalanx bench threads`: a trainer's speed with one thread, one a core, and our choice; alone and on busy cores."""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from phalanx.bench.busy import BusyProcesses
from phalanx.bench.report import Table, tell
from phalanx.bench.training import LOOK_EVERY_S, Training, TrainingFailed, synthetic
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.observe.progress import progress
from phalanx.runs import events as ev
from phalanx.runs.events import Record, read_events

AUTO = "auto"
_WARM_UP = 2  # steps that are not counted
_BATCHES = 8  # of an epoch: the same few images again and again
_MOST_BUSY = 256
_SETTLE_S = 1.5  # until a training has noticed that it shares the cores
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class ThreadsPlan:
    """The settings of the benchmark."""

    model: str
    batch_size: int
    size: int
    loads: tuple[int, ...]  # busy processes
    turn_s: float
    rounds: int
    precision: str = "auto"
    choices: tuple[str, ...] = (AUTO, *dict.fromkeys(("1", str(cores()))))  # of machine.threads

    @property
    def subject(self) -> str:
        return f"{self.model} {self.size}² batch {self.batch_size}, {cores()} cores, {self.precision}"


@dataclass
class Results:
    """Images/s of each round by (load, choice), and what auto chose."""

    rates: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    chosen: str = ""
    stopped: str = ""  # the progress, if the user interrupted


def parse_loads(text: str) -> tuple[int, ...]:
    """`0,8` as numbers of busy processes."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) <= _MOST_BUSY for word in words):
        raise UserError(
            f"--load {text} is not known",
            why=f"it counts busy processes, {_MOST_BUSY} at most",
            remedy="such as --load 0,8",
        )
    return tuple(dict.fromkeys(map(int, words)))


def bench_threads(console: Console, plan: ThreadsPlan, *, markdown: Path | None, json_file: Path | None) -> None:
    """Measure in turns, and report."""
    results = _measure(console, plan)
    compared = [key for key in results.rates if key[1] != AUTO]
    tell(
        console,
        "threads",
        [make_table(plan, results)],
        {f"auto / {choice} threads, load {load}": _ratio(results, load, choice) for load, choice in compared},
        subject=plan.subject,
        markdown=markdown,
        json_file=json_file,
    )
    if results.stopped:
        raise KeyboardInterrupt


def _measure(console: Console, plan: ThreadsPlan) -> Results:
    """Run all rounds; in each, auto comes first."""
    results, taken = Results(), 0
    turns = plan.rounds * len(plan.loads) * len(plan.choices)
    with progress(console, "turns", turns) as advance:
        try:
            for _ in range(plan.rounds):
                for load in plan.loads:
                    for choice in plan.choices:
                        rate = _turn(plan, load, choice, results)
                        results.rates.setdefault((load, choice), []).append(rate)
                        advance(1)
                        taken += 1
        except KeyboardInterrupt:
            if not results.rates:
                raise
            results.stopped = f"stopped by you after {taken} of {turns} turns"
    return results


def _turn(plan: ThreadsPlan, load: int, choice: str, results: Results) -> float:
    """Images/s of one training that is ended after the turn's time."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        out = Path(folder) / "run"
        words = synthetic(plan.model, plan.size, plan.batch_size, _BATCHES)
        words += ["--precision", plan.precision, "--out", str(out), "train.length=1000000st", "eval.every=100%"]
        words += ["checkpoint.every=100%", f"machine.threads={choice}"]
        with Training(["train", *words], out) as training:
            _await_steps(training, _WARM_UP)
            with BusyProcesses(load):
                begun = time.time() + _SETTLE_S
                while time.time() < begun + plan.turn_s:
                    time.sleep(LOOK_EVERY_S)
                training.look()
                _await_steps(training, training.steps + 1)  # one at least, however slow
        records = read_events(out)
    if choice == AUTO:
        results.chosen = str(next(each for each in records if each["kind"] == ev.Start.kind)["decisions"]["threads"])
    return rate_of(records, plan.batch_size, begun)


def _await_steps(training: Training, number: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while training.steps < number:
        training.look()
        if training.has_ended:
            raise _ended(training)
        if time.monotonic() > deadline:
            raise UserError("a step takes too long", why=f"{_PATIENCE_S:.0f} s", remedy="try a smaller model or batch")
        time.sleep(LOOK_EVERY_S)


def _ended(training: Training) -> UserError:
    try:
        training.result()
    except TrainingFailed as error:
        return UserError("the training ended", why=str(error), remedy="`phalanx models` lists what there is")
    return UserError("the training ended", why="it was stopped by others", remedy="start the benchmark again")


def rate_of(records: Sequence[Record], batch_size: int, begun: float) -> float:
    """Images/s from the last step before `begun` on."""
    times: list[float] = [record["t"] for record in records if record["kind"] == ev.Step.kind]
    first = max(number for number, at in enumerate(times[:-1]) if at <= begun or number == 0)
    return batch_size * (len(times) - 1 - first) / max(1e-3, times[-1] - times[first])


def _ratio(results: Results, load: int, choice: str) -> float:
    """How many times as fast auto was in the same rounds: the median."""
    pairs = zip(results.rates[load, AUTO], results.rates[load, choice], strict=False)
    return statistics.median(auto / other for auto, other in pairs)


def make_table(plan: ThreadsPlan, results: Results) -> Table:
    """A row for each load and choice."""
    rows = [
        [
            f"{load} busy processes" if load else "alone",
            choice,
            f"{statistics.median(rates):,.1f}",
            f"{min(rates):,.1f} to {max(rates):,.1f}",
            f"{_ratio(results, load, choice):.2f}",
        ]
        for (load, choice), rates in results.rates.items()
    ]
    return Table(
        f"Training {plan.subject}, {plan.rounds} turns of {plan.turn_s:g} s",
        ("beside", "threads", "images/s", "spread", "auto is …×"),
        rows,
        (
            f"auto: {results.chosen}",
            "auto is …×: how many times as fast auto was in the same rounds, their median",
            *([results.stopped] if results.stopped else []),
        ),
    )
