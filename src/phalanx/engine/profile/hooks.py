"""Profiles some steps of a loop: hooks of the loop around those of the trainer."""

import statistics
import time
from collections.abc import Callable

from phalanx.config.schema import ProfileConfig
from phalanx.data.base import Batch
from phalanx.engine.loop import LoopHooks
from phalanx.engine.profile.recorder import StepRecorder, recording_of
from phalanx.engine.profile.spans import Recording, StepTimes
from phalanx.engine.state import TrainState
from phalanx.engine.step import Measurements

Conclude = Callable[[Recording], None]  # all workers of a job call it


class ProfilingHooks:
    """Starts the profiler before the steps that count, and concludes after them.

    The first steps with the profiler on do not count: while it starts, batches are made ahead, and hide how long data
    take. With `config.alone`, nothing is evaluated or saved, and the loop ends after the last step that counts.
    """

    def __init__(
        self,
        inner: LoopHooks,
        recorder: StepRecorder,
        config: ProfileConfig,
        conclude: Conclude,
        *,
        prefetch: int,
        at_once: bool,
    ) -> None:
        """`at_once`: workers are in lockstep, so that all conclude after the same step; otherwise call `conclude`."""
        self._inner, self._recorder, self._config = inner, recorder, config
        self._conclude, self._at_once = conclude, at_once
        self._begin_after = max(0, config.start - prefetch - 1)
        self._done = 0
        self._began = 0.0
        self._on = False
        self._before: list[float] = []  # steps without the profiler
        self._steps: list[StepTimes] = []
        self._recording: Recording | None = None
        self.concluded = False

    @property
    def ended_run(self) -> bool:
        """Whether the run ended because its profile is there."""
        return self._config.alone and self.concluded

    def begin(self) -> None:
        """Before the first step."""
        self._began = time.perf_counter()
        if self._begin_after == 0:
            self._start()

    def close(self) -> None:
        """Remove what listens, however the loop has ended."""
        if self._on:
            self._on = False
            self._recorder.close()

    def conclude(self) -> None:
        """After the loop, if that was not possible inside."""
        if self._recording is not None and not self.concluded:
            self.concluded = True
            self._conclude(self._recording)

    def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None:
        self._inner.report(state, batch, measurements)
        self._done += 1
        now = self._recorder.next_step() if self._on else time.perf_counter()
        if self._on and self._done > self._config.start:
            self._steps.append(_times(state.step, self._began, now, measurements))
        elif not self._on:
            self._before.append(now - self._began)
        self._began = now
        if self._on and len(self._steps) == self._config.steps:
            self._stop()
        elif self._done == self._begin_after:
            self._start()

    def evaluate(self, state: TrainState) -> bool:
        if self._config.alone:
            state.evaluated_step = state.step
            return False
        best = self._inner.evaluate(state)
        self._skip()
        return best

    def save(self, state: TrainState) -> None:
        if not self._config.alone:
            self._inner.save(state)
            self._skip()

    def ends_early(self) -> bool:
        return (self._config.alone and self._recording is not None) or self._inner.ends_early()

    def rejoined(self, state: TrainState, text: str) -> None:
        self._inner.rejoined(state, text)
        self._skip()

    def _start(self) -> None:
        self._on = True
        self._began = self._recorder.start()

    def _skip(self) -> None:
        """What was done since the step is none of the next one."""
        self._began = self._recorder.next_step() if self._on else time.perf_counter()

    def _stop(self) -> None:
        self._on = False
        spans = self._recorder.stop()
        # The first step also sets up what later ones reuse.
        before = statistics.median(self._before[1:]) if len(self._before) > 1 else None
        self._recording = recording_of(spans, self._steps, before, self._recorder.device)
        if self._at_once:
            self.conclude()


def _times(step: int, began: float, now: float, measured: Measurements) -> StepTimes:
    return StepTimes(
        step,
        began,
        now - began,
        data=measured.data_s,
        exchange=measured.exchange_s,
        inside_backward=measured.inside_backward_s,
        update=measured.update_s,
        bytes_sent=measured.bytes_sent,
    )
