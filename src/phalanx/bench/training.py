"""Runs `phalanx train` in separate processes, and watches its run folder."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from phalanx.bench.contender import peak_of
from phalanx.runs import events as ev
from phalanx.runs.events import EVENTS_FILE, Record, read_events

LOOK_EVERY_S = 0.05
GRACE_S = 15.0  # to save and end after a signal
LAST_WORDS = 4  # lines
MODULE = (sys.executable, "-m", "phalanx")


class TrainingFailed(Exception):
    """It ended with an error, which is the message."""


@dataclass(frozen=True)
class Trained:
    """The result of a training."""

    folder: Path
    begun: float  # seconds since 1970, when its process was started
    records: list[Record]
    peak_bytes: int  # of the process that was started

    def steps(self) -> list[Record]:
        return [record for record in self.records if record["kind"] == ev.Step.kind]


class Training:
    """One training into `out`. The context manager ends it."""

    def __init__(self, words: Sequence[str], out: Path) -> None:
        self.out, self.steps, self.total_steps = out, 0, 0
        self._offset, self._peak_bytes, self._paused = 0, 0, False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with the training)
        self._begun = time.time()
        self._process = subprocess.Popen(
            [*MODULE, *words],
            env={**os.environ, "PHALANX_LIFELINE": "stdin"},  # it ends when this process does, even by kill -9
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            process_group=0,  # of this session: one that is paused then is woken by the kernel
        )

    def __enter__(self) -> "Training":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.go_on()
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._said.close()

    @property
    def has_started(self) -> bool:
        """Whether it has started, and the first step may begin."""
        return self.total_steps > 0

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def pause(self) -> None:
        if not self._paused:
            self._process.send_signal(signal.SIGSTOP)
            self._paused = True

    def go_on(self) -> None:
        if self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def look(self) -> None:
        """Update its progress and peak memory."""
        self._peak_bytes = max(self._peak_bytes, peak_of(self._process.pid))
        with suppress(OSError), (self.out / EVENTS_FILE).open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    self._offset += len(line)
                    self._note(json.loads(line))

    def _note(self, record: dict[str, Any]) -> None:
        if record["kind"] == ev.Start.kind:
            self.total_steps = record["total_steps"]
        elif record["kind"] == ev.Step.kind:
            self.steps = record["step"]

    def result(self) -> Trained:
        """Its result, after its end."""
        code = self._process.wait()
        if code != 0:
            self._said.seek(0)
            words = self._said.read().decode(errors="replace")
            raise TrainingFailed(last_words(words) or f"it ended with code {code}")
        return Trained(self.out, self._begun, read_events(self.out), self._peak_bytes)


def train_together(
    commands: Sequence[tuple[Sequence[str], Path]],
    watch: Callable[[float], None] = lambda share: None,
    *,
    gate: bool = False,
) -> list[Trained]:
    """Run trainings at the same time. `watch` gets the share of their steps that is done.

    With a `gate` (for processes of this machine that are one each) none goes on before all are ready for their first
    step: otherwise the one that starts first would have the machine for itself for a while.
    """
    trainings: list[Training] = []
    try:
        trainings += [Training(words, out) for words, out in commands]
        closed = gate and len(trainings) > 1
        while not all(training.has_ended for training in trainings):
            for training in trainings:
                training.look()
                if closed and training.has_started and not training.has_ended:
                    training.pause()
                if training.has_ended:
                    training.result()  # one that failed ends all
            if closed and all(training.has_started for training in trainings):
                closed = False
                for training in trainings:
                    training.go_on()
            watch(sum(each.steps / (each.total_steps or 1) for each in trainings) / len(trainings))
            time.sleep(LOOK_EVERY_S)
        return [training.result() for training in trainings]
    finally:
        for training in trainings:
            training.__exit__(None, None, None)


def synthetic(model: str, size: int, batch_size: int, steps: int, *, workers: int = 1, log_every: int = 1) -> list[str]:
    """Arguments of `train` for a number of steps on random images, with little validation."""
    return [
        "synthetic",
        *("--model", model, "--batch-size", str(batch_size), "--log-every", str(log_every)),
        f"train.length={steps}st",
        f"data.synthetic.size={size}",
        f"data.synthetic.samples={steps * batch_size * workers}",  # an epoch's last step may be a smaller one
        f"data.synthetic.val_samples={2 * workers}",
        "train.curves=false",
    ]


def last_words(said: str) -> str:
    """The error of a command, as one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    chosen = lines[errors[-1] :] if errors else lines
    return " / ".join(chosen[-LAST_WORDS:] if not errors else chosen[:LAST_WORDS])
