"""The durations of a run, in steps."""

from dataclasses import dataclass
from typing import Protocol

from phalanx.config.durations import Duration
from phalanx.config.schema import RunConfig
from phalanx.data.order import num_batches
from phalanx.errors import UserError


class Position(Protocol):
    """Where training is: its state has this."""

    step: int
    evaluated_step: int


@dataclass(frozen=True)
class StepPlan:
    """The durations of a run, in steps."""

    steps_per_epoch: int
    samples_per_step: int
    total_steps: int
    evaluate_every: int
    save_every: int
    replays: int = 1  # steps that use the same batch, one after the other

    def evaluation_due(self, state: Position) -> bool:
        at_place = state.step % self.evaluate_every == 0 or state.step >= self.total_steps
        return at_place and state.step > 0 and state.evaluated_step < state.step

    def save_due(self, state: Position) -> bool:
        return state.step % self.save_every == 0 or state.step >= self.total_steps

    def in_steps(self, duration: Duration) -> int:
        return duration.steps(
            steps_per_epoch=self.steps_per_epoch // self.replays,
            samples_per_step=self.samples_per_step,
            total_steps=self.total_steps,
        )

    def number_in_epoch(self, start: int, step: int) -> int:
        """Of a step that is done, from 1; `start` is where its samples begin."""
        return start // self.samples_per_step * self.replays + (step - 1) % self.replays + 1


def make_plan(config: RunConfig, epoch_samples: int, samples_per_step: int) -> StepPlan:
    """Convert every duration of a run to steps.

    Where batches are replayed, an epoch of a duration is as many updates as without replays, as Shafahi et al. count:
    the run costs the same, and passes over the data so many times less often. It is only saved and evaluated between
    batches.
    """
    replays = config.adversarial.updates_per_batch
    per_epoch = num_batches(epoch_samples, samples_per_step, config.data.drop_last)
    if config.train.length.unit == "%":
        raise UserError(
            f"train.length cannot be {config.train.length}",
            why="a share of the run cannot say how long the run is",
            remedy="write it in epochs (90ep), steps (5000st) or examples (1000000ex)",
        )

    def steps(duration: Duration, total: int | None) -> int:
        exact = duration.steps(steps_per_epoch=per_epoch, samples_per_step=samples_per_step, total_steps=total)
        return -(-max(1, exact) // replays) * replays

    total = steps(config.train.length, None)
    evaluate_every, save_every = steps(config.eval.every, total), steps(config.checkpoint.every, total)
    return StepPlan(per_epoch * replays, samples_per_step, total, evaluate_every, save_every, replays)
