"""Free adversarial training: batches come several times, and the change of their images goes from one to the next."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phalanx.config.schema import AdversarialConfig
from phalanx.engine.attack import PixelRange
from phalanx.engine.free_adversarial import FreeAdversarial
from phalanx.engine.loop import make_plan, train
from phalanx.engine.objective import Forward, Objective, View
from phalanx.engine.replay import replayed
from phalanx.engine.step import train_step
from tests.engine.tiny import TinyRun, tiny_run

FREE = (
    "adversarial={attack: free, replays: 3, eps: 0.1}",
    "train.length=2ep",
    "eval.every=4st",
    "checkpoint.every=1ep",
)


class Watched:
    """The objective below, and the images that it is given."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.seen = inner, list[Tensor]()

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        self.seen.append(view.images.detach().clone())
        return self.inner(view, forward)


def free(run: TinyRun, config: AdversarialConfig | None = None) -> tuple[TinyRun, Watched]:
    watched = Watched(run.engine.objective)
    pixels = PixelRange.of(run.spec.mean, run.spec.std, torch.device("cpu"))
    objective = FreeAdversarial(config or run.config.adversarial, watched, pixels, seed=0)
    run.engine = replace(run.engine, objective=objective)
    return run, watched


def test_durations_count_updates_and_end_between_batches() -> None:
    plan = make_plan(tiny_run(*FREE).config, 40, 8)
    # 2 epochs of 5 updates are 10; the fourth batch is used to its end.
    assert (plan.steps_per_epoch, plan.total_steps, plan.evaluate_every, plan.save_every) == (15, 12, 6, 6)
    assert [plan.number_in_epoch(start, step) for start, step in [(0, 1), (0, 3), (8, 4), (32, 15)]] == [1, 3, 4, 15]


def test_each_batch_comes_so_many_times_and_the_position_moves_after_the_last() -> None:
    run = tiny_run(*FREE)
    batches = replayed(run.pipeline.stream(0, 24), 3, step=10)  # the replay after the first one of this batch
    found = [next(batches) for _ in range(6)]
    batches.close()
    assert [(one.epoch, one.start, one.again, one.last) for one in found] == [
        *((0, 24, True, False), (0, 24, False, False)),
        *((0, 32, True, False), (0, 32, True, False), (0, 32, False, True)),
        (1, 0, True, False),
    ]
    state = run.state
    positions = []
    for one in found:
        state.advance(one)
        positions.append((state.epoch, state.start))
    assert positions == [(0, 0), (0, 32), (0, 32), (0, 32), (1, 0), (1, 0)]
    state.move_to(10, run.plan.steps_per_epoch, run.plan.samples_per_step, run.plan.replays)
    assert (state.step, state.epoch, state.start) == (10, 0, 24)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_changes_go_up_the_loss_from_one_replay_to_the_next_and_start_anew_with_a_batch(norm: str) -> None:
    eps = {"linf": 0.1, "l2": 0.8}[norm]
    run, watched = free(tiny_run(*FREE, f"adversarial.norm={norm}", f"adversarial.eps={eps}", "optim.lr=1e-9"))
    batches = replayed(run.pipeline.stream(), 3, 0)
    losses = []
    for _ in range(4):
        batch = next(batches)
        losses.append(train_step(run.state, batch, run.exchange, run.engine).totals.loss)
        run.state.advance(batch)
    clean = run.engine.inputs.training(run.batch().micro[0], 0, 0, 0)[0]
    batches.close()
    assert losses[0] < losses[1] <= losses[2] + 1e-6
    std = torch.tensor(run.spec.std).view(1, -1, 1, 1)
    for images in watched.seen[:3]:
        change = ((images - clean) * std).flatten(1)
        size = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
        assert eps / 4 < float(size.max()) <= eps * 1.001
    again, other = free(tiny_run(*FREE, f"adversarial.norm={norm}", f"adversarial.eps={eps}"))
    other_start = run.batch(0, 8)
    again.state.step = 3
    train_step(again.state, other_start, again.exchange, again.engine)
    assert torch.equal(other.seen[0], watched.seen[3])  # drawn, whatever came before


def test_the_update_is_that_of_the_changed_images_and_has_one_pass() -> None:
    run, watched = free(tiny_run(*FREE))
    batch = next(batches := replayed(run.pipeline.stream(), 3, 0))
    batches.close()
    train_step(run.state, batch, run.exchange, run.engine)
    assert len(watched.seen) == 1
    plain = tiny_run(*FREE)

    class Given:
        def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
            return watched.inner(replace(view, images=watched.seen[0]), forward)

    train_step(plain.state, batch, plain.exchange, replace(plain.engine, objective=Given()))
    assert all(
        torch.equal(one, other) for one, other in zip(run.weights().values(), plain.weights().values(), strict=True)
    )


def test_a_request_to_stop_waits_for_the_batch() -> None:
    run, _ = free(tiny_run(*FREE))
    saved: list[int] = []

    class Hooks:
        def report(self, state: object, batch: object, measurements: object) -> None: ...
        def evaluate(self, state: object) -> bool:
            return False

        def save(self, state: object) -> None:
            saved.append(run.state.step)

        def ends_early(self) -> bool:
            return False

        def rejoined(self, state: object, text: str) -> None: ...

    stopping = lambda: run.state.step >= 1  # noqa: E731
    assert not train(run.state, run.pipeline, run.exchange, run.engine, run.plan, Hooks(), stopping)
    assert (run.state.step, run.state.start, saved) == (3, 8, [3])
