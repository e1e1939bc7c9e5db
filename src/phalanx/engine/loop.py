"""The training loop. It does not know which update method or which source it runs."""

from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from phalanx.data.base import Batch
from phalanx.data.pipeline import Pipeline
from phalanx.engine.boundary import Boundary
from phalanx.engine.evaluate import Interrupted
from phalanx.engine.lookahead import announced
from phalanx.engine.replay import replayed
from phalanx.engine.state import TrainState
from phalanx.engine.step import Engine, Measurements, train_step
from phalanx.engine.step_plan import StepPlan as StepPlan
from phalanx.engine.step_plan import make_plan as make_plan
from phalanx.exchange.base import AsyncWorkerGroup, Exchange, GivenUp
from phalanx.scopes import scope


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

    def ends_early(self) -> bool:
        """After an evaluation: whether all workers know that training ends here."""
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
        state.move_to(back.step, plan.steps_per_epoch, plan.samples_per_step, plan.replays)
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
        stream = replayed(pipeline.stream(state.epoch, state.start), plan.replays, state.step)
        with closing(announced(stream, engine.announce, state.step, plan.total_steps)) as batches:
            while state.step < plan.total_steps and not stop:
                with scope("data"):
                    batch = next(batches)
                if boundary is not None:
                    boundary.mark(state)
                measurements = train_step(state, batch, exchange, engine, stopping)
                state.advance(batch)
                hooks.report(state, batch, measurements)
                best = hooks.evaluate(state) if plan.evaluation_due(state) else False
                if best or plan.save_due(state):
                    hooks.save(state)
                stop = (measurements.stop or hooks.ends_early()) and not batch.again
    except Interrupted:
        pass
    if state.step < plan.total_steps or plan.evaluation_due(state):
        if isinstance(exchange.group, AsyncWorkerGroup):
            exchange.group.leave()
        hooks.save(state)
        return False
    return True
