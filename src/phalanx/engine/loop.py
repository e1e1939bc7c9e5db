"""The training loop. It does not know which update method or which source it runs."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from phalanx.config.durations import Duration
from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch
from phalanx.data.order import num_batches
from phalanx.data.pipeline import Pipeline
from phalanx.engine.boundary import Boundary
from phalanx.engine.evaluate import Interrupted
from phalanx.engine.state import TrainState
from phalanx.engine.step import Engine, Measurements, train_step
from phalanx.errors import UserError
from phalanx.exchange.base import AsyncWorkerGroup, Exchange


@dataclass(frozen=True)
class StepPlan:
    """A run's durations in steps."""

    steps_per_epoch: int
    samples_per_step: int
    total_steps: int
    evaluate_every: int
    save_every: int

    def evaluation_due(self, state: TrainState) -> bool:
        at_place = state.step % self.evaluate_every == 0 or state.step >= self.total_steps
        return at_place and state.step > 0 and state.evaluated_step < state.step

    def save_due(self, state: TrainState) -> bool:
        return state.step % self.save_every == 0 or state.step >= self.total_steps

    def in_steps(self, duration: Duration) -> int:
        return duration.steps(
            steps_per_epoch=self.steps_per_epoch,
            samples_per_step=self.samples_per_step,
            total_steps=self.total_steps,
        )


def make_plan(config: RunConfig, num_samples: int, samples_per_step: int) -> StepPlan:
    """Resolve every duration of a run, once."""
    per_epoch = num_batches(num_samples, samples_per_step, config.data.drop_last)
    if config.train.length.unit == "%":
        raise UserError(
            f"train.length cannot be {config.train.length}",
            why="a share of the run cannot say how long the run is",
            remedy="write it in epochs (90ep), steps (5000st) or examples (1000000ex)",
        )

    def steps(duration: Duration, total: int | None) -> int:
        return max(1, duration.steps(steps_per_epoch=per_epoch, samples_per_step=samples_per_step, total_steps=total))

    total = steps(config.train.length, None)
    return StepPlan(
        per_epoch, samples_per_step, total, steps(config.eval.every, total), steps(config.checkpoint.every, total)
    )


class Actions(Protocol):
    """What happens around the steps."""

    def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None: ...

    def evaluate(self, state: TrainState) -> bool:
        """Evaluate and remember the best. True if this is it. Raises Interrupted when asked to stop."""
        ...

    def save(self, state: TrainState) -> None: ...


def train(
    state: TrainState,
    pipeline: Pipeline,
    exchange: Exchange,
    engine: Engine,
    plan: StepPlan,
    actions: Actions,
    stopping: Callable[[], bool],
    boundary: Boundary | None = None,
) -> bool:
    """Train from where `state` stands to the end of the plan. False if it was asked to stop before.

    `boundary` is there where other workers may be lost, and what was done up to the last step is to be saved.
    """
    state.model.train()
    try:
        if plan.evaluation_due(state):  # the run was stopped while it evaluated
            actions.evaluate(state)
            actions.save(state)
        stop = False
        with closing(pipeline.stream(state.epoch, state.start)) as batches:
            while state.step < plan.total_steps and not stop:
                batch = next(batches)
                if boundary is not None:
                    boundary.mark(state)
                measurements = train_step(state, batch, exchange, engine, stopping)
                stop = measurements.stop
                state.advance(batch)
                actions.report(state, batch, measurements)
                best = actions.evaluate(state) if plan.evaluation_due(state) else False
                if best or plan.save_due(state):
                    actions.save(state)
    except Interrupted:
        pass
    if state.step < plan.total_steps or plan.evaluation_due(state):
        if isinstance(exchange.group, AsyncWorkerGroup):
            exchange.group.leave()
        actions.save(state)
        return False
    return True
