"""The loop: what is due when, stopping in the middle, and taking up a run where it was stopped."""

from dataclasses import dataclass, field, replace

import pytest

from phalanx.config.resolve import parse_override, resolve
from phalanx.data.base import Batch
from phalanx.data.pipeline import Pipeline
from phalanx.engine.evaluate import Interrupted
from phalanx.engine.loop import StepPlan, make_plan, train
from phalanx.engine.state import TrainState
from phalanx.engine.step import Engine, Measurements
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange, GivenUp, Rejoined
from tests.data.samples import assert_helpful
from tests.engine.tiny import TinyRun, network, same, tiny_run

PLAN = StepPlan(steps_per_epoch=5, samples_per_step=8, total_steps=12, evaluate_every=5, save_every=4)


@dataclass
class Written:
    """Writes down what the loop calls, and at which step."""

    best_at: tuple[int, ...] = ()
    interrupt_at: int | None = None
    calls: list[tuple[str, int]] = field(default_factory=list)

    def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None:
        self.calls.append(("step", state.step))

    def evaluate(self, state: TrainState) -> bool:
        if state.step == self.interrupt_at:
            raise Interrupted
        self.calls.append(("evaluate", state.step))
        state.evaluated_step = state.step
        return state.step in self.best_at

    def save(self, state: TrainState) -> None:
        self.calls.append(("save", state.step))

    def ends_early(self) -> bool:
        return False

    def rejoined(self, state: TrainState, text: str) -> None:
        self.calls.append(("rejoined", state.step))

    def of(self, name: str) -> list[int]:
        return [step for call, step in self.calls if call == name]


def go(tiny: TinyRun, written: Written, stop_after: int | None = None) -> bool:
    def stopping() -> bool:
        return stop_after is not None and tiny.state.step + 1 >= stop_after

    return train(tiny.state, tiny.pipeline, tiny.exchange, tiny.engine, tiny.plan, written, stopping)


@pytest.mark.parametrize(
    ("step", "evaluated", "due"),
    [(0, 0, False), (4, 0, False), (5, 0, True), (5, 5, False), (10, 5, True), (12, 10, True), (12, 12, False)],
)
def test_evaluation_is_due_at_its_steps_and_at_the_end_once(
    step: int, evaluated: int, due: bool, tiny: TinyRun
) -> None:
    tiny.state.step, tiny.state.evaluated_step = step, evaluated
    assert PLAN.evaluation_due(tiny.state) == due


@pytest.mark.parametrize(("step", "due"), [(3, False), (4, True), (8, True), (11, False), (12, True)])
def test_saving_is_due_at_its_steps_and_at_the_end(step: int, due: bool, tiny: TinyRun) -> None:
    tiny.state.step = step
    assert PLAN.save_due(tiny.state) == due


def test_a_worker_that_was_given_up_goes_on_at_the_step_of_the_others(tiny: TinyRun) -> None:
    class Frozen(Written):
        def report(self, state: TrainState, batch: Batch, measurements: Measurements) -> None:
            if state.step == 3 and not self.of("rejoined"):
                raise GivenUp("trainer-1 was taken for lost")
            super().report(state, batch, measurements)

    back = Rejoined(tiny.plan.steps_per_epoch + 1, "it joined again")
    exchange = replace(tiny.exchange, rejoin=lambda given_up: back)
    written = Frozen()
    train(tiny.state, tiny.pipeline, exchange, tiny.engine, tiny.plan, written, bool)
    assert written.of("step") == [1, 2, *range(back.step + 1, tiny.plan.total_steps + 1)]
    assert written.of("rejoined") == [back.step]
    with pytest.raises(GivenUp):
        train(*_again(tiny), Frozen(), bool)


def _again(tiny: TinyRun) -> tuple[TrainState, Pipeline, Exchange, Engine, StepPlan]:
    tiny.state.move_to(0, tiny.plan.steps_per_epoch, tiny.plan.samples_per_step)
    return tiny.state, tiny.pipeline, tiny.exchange, tiny.engine, tiny.plan


@pytest.fixture
def tiny() -> TinyRun:
    return tiny_run()


def test_durations_become_steps() -> None:
    def plan(*settings: str, samples: int = 45) -> StepPlan:
        return make_plan(resolve(list(map(parse_override, settings))).config, samples, 8)

    made = plan("train.length=3ep", "eval.every=50%", "checkpoint.every=80ex")
    assert made == StepPlan(
        steps_per_epoch=6, samples_per_step=8, total_steps=18, evaluate_every=9, save_every=10
    )  # the last step of an epoch has 5 samples
    assert plan("train.length=3ep", "data.drop_last=true").total_steps == 15
    assert plan("train.length=7st", "eval.every=1%").evaluate_every == 1  # never more often than every step
    with pytest.raises(UserError) as caught:
        plan("train.length=50%")
    assert_helpful(caught.value, "train.length cannot be 50%", "how long the run is", "5000st")


def test_a_run_evaluates_and_saves_when_due_and_what_is_best(tiny: TinyRun) -> None:
    tiny.plan = PLAN
    written = Written(best_at=(5,))
    assert go(tiny, written)
    assert written.of("step") == list(range(1, 13))
    assert written.of("evaluate") == [5, 10, 12]
    assert written.of("save") == [4, 5, 8, 12]
    assert written.calls[-3:] == [("step", 12), ("evaluate", 12), ("save", 12)]
    assert (tiny.state.epoch, tiny.state.start) == (2, 16)
    assert tiny.state.model.training


def test_a_run_that_is_stopped_saves_and_goes_on_as_if_it_had_not() -> None:
    whole, parts = (tiny_run(model=network(norm=True, drop=0.5)) for _ in range(2))
    assert go(whole, Written())
    written = Written()
    assert not go(parts, written, stop_after=3)
    assert written.calls == [("step", 1), ("step", 2), ("step", 3), ("save", 3)]
    assert (parts.state.epoch, parts.state.start) == (0, 24)
    assert go(parts, written)
    assert written.of("step") == list(range(1, 11))
    assert same(parts.weights(), whole.weights())


def test_a_run_that_was_stopped_while_it_evaluated_evaluates_first(tiny: TinyRun) -> None:
    written = Written(interrupt_at=5)
    assert not go(tiny, written)
    assert written.calls[-2:] == [("step", 5), ("save", 5)]
    again = Written()
    assert go(tiny, again)
    assert again.calls[:3] == [("evaluate", 5), ("save", 5), ("step", 6)]


def test_an_evaluation_at_the_very_end_can_be_made_up_for(tiny: TinyRun) -> None:
    written = Written(interrupt_at=10)
    assert not go(tiny, written)  # all steps are made, and yet the run is not finished
    again = Written()
    assert go(tiny, again)
    assert again.calls == [("evaluate", 10), ("save", 10)]
