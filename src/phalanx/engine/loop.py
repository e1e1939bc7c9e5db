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
from phalanx.exchange.base import AsyncWorkerGroup, Exchange, GivenUp


@dataclass(frozen=True)
class StepPlan:
    """The durations of a run, in steps."""

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


def make_plan(config: RunConfig, epoch_samples: int, samples_per_step: int) -> StepPlan:
    """Convert every duration of a run to steps."""
    per_epoch = num_batches(epoch_samples, samples_per_step, config.data.drop_last)
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


class LoopHooks(Protocol):
    """What the loop calls between its steps. Lightning calls these hooks, too; `engine.trainer.Trainer` has them."""

    def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None:
        """After every step."""
        ...

    def evaluate(self, state: TrainState) -> bool:
        """When an evaluation is due. True if it is the best so far. Raises Interrupted if a stop is requested."""
        ...

    def save(self, state: TrainState) -> None:
        """When a checkpoint is due, and before the loop stops."""
        ...

    def rejoined(self, state: TrainState, text: str) -> None:
        """After this worker was taken for lost, and has joined the others again."""
        ...


def train(
    state: TrainState,
    pipeline: Pipeline,
    exchange: Exchange,
    engine: Engine,
    plan: StepPlan,
    hooks: LoopHooks,
    stopping: Callable[[], bool],
    boundary: Boundary | None = None,
) -> bool:
    """Train from the position of `state` to the end of the plan. False if a stop was requested before.

    An elastic job gives its `boundary`, so that a step can be undone when a worker is lost.
    """
    while True:
        try:
            return _train(state, pipeline, exchange, engine, plan, hooks, stopping, boundary)
        except GivenUp as given_up:
            if exchange.rejoin is None:
                raise
            back = exchange.rejoin(given_up)
        state.move_to(back.step, plan.steps_per_epoch, plan.samples_per_step)
        hooks.rejoined(state, back.text)


def _train(
    state: TrainState,
    pipeline: Pipeline,
    exchange: Exchange,
    engine: Engine,
    plan: StepPlan,
    hooks: LoopHooks,
    stopping: Callable[[], bool],
    boundary: Boundary | None,
) -> bool:
    """The same, until the others take this worker for lost."""
    state.model.train()
    try:
        if plan.evaluation_due(state):  # the run was stopped while it evaluated
            hooks.evaluate(state)
            hooks.save(state)
        stop = False
        with closing(pipeline.stream(state.epoch, state.start)) as batches:
            while state.step < plan.total_steps and not stop:
                batch = next(batches)
                if boundary is not None:
                    boundary.mark(state)
                measurements = train_step(state, batch, exchange, engine, stopping)
                stop = measurements.stop
                state.advance(batch)
                hooks.report(state, batch, measurements)
                best = hooks.evaluate(state) if plan.evaluation_due(state) else False
                if best or plan.save_due(state):
                    hooks.save(state)
    except Interrupted:
        pass
    if state.step < plan.total_steps or plan.evaluation_due(state):
        if isinstance(exchange.group, AsyncWorkerGroup):
            exchange.group.leave()
        hooks.save(state)
        return False
    return True
