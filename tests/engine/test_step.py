"""One step: gradients of uneven parts, what stops or skips an update, and what is measured."""

import math

import pytest
import torch
from torch.nn import functional as F

from phalanx.engine.state import LossScale
from phalanx.engine.step import LossNotFinite, Measurements, train_step
from tests.data.samples import assert_helpful
from tests.engine.tiny import TinyRun, network, same, tiny_run


def step(tiny: TinyRun, epoch: int = 0, start: int = 0) -> Measurements:
    return train_step(tiny.state, tiny.batch(epoch, start), tiny.exchange, tiny.engine)


@pytest.mark.parametrize("parts", [1, 3, 4])
def test_parts_of_a_batch_are_weighted_by_their_samples(parts: int) -> None:
    """SGD without momentum: what the parameters move by is the gradient of the mean over all samples."""
    tiny = tiny_run("train.global_batch_size=10", f"train.micro_batches={parts}", "optim.lr=0.5")
    batch = tiny.batch()
    assert [micro.count for micro in batch.micro] == {1: [10], 3: [4, 3, 3], 4: [3, 3, 2, 2]}[parts]
    plain = network()
    images = torch.cat([tiny.engine.inputs.plain(micro)[0] for micro in batch.micro])
    labels = torch.cat([micro.labels for micro in batch.micro])
    loss = F.cross_entropy(plain(images), labels)
    loss.backward()
    measured = train_step(tiny.state, batch, tiny.exchange, tiny.engine)
    for param, moved in zip(plain.parameters(), tiny.state.model.parameters(), strict=True):
        assert param.grad is not None
        torch.testing.assert_close(moved, param - 0.5 * param.grad)
        assert moved.grad is None
    assert measured.totals.samples == measured.samples == 10
    assert measured.totals.loss == pytest.approx(loss.item())
    assert measured.totals.correct1 == int((plain(images).argmax(1) == labels).sum())
    first = plain(images).topk(3).indices  # of four classes: the first four would be all of them
    assert measured.totals.correctk == int((first == labels[:, None]).any(dim=1).sum())
    assert measured.lr == 0.5
    assert not measured.stop


def test_an_overflow_in_fp16_skips_the_update_and_halves_the_scale() -> None:
    tiny = tiny_run("optim.ema=0.5", loss_scale=LossScale(scale=1e300))
    assert tiny.state.ema is not None
    before, average = tiny.weights(), {name: t.clone() for name, t in tiny.state.ema.model.state_dict().items()}
    measured = step(tiny)
    assert measured.skipped
    assert measured.lr == 0
    assert measured.totals.samples == 8
    assert same(tiny.weights(), before)
    assert same(tiny.state.ema.model.state_dict(), average)
    assert tiny.state.loss_scale == LossScale(scale=5e299, calm=0)
    assert all(param.grad is None for param in tiny.state.model.parameters())


def test_a_scaled_loss_gives_the_same_update() -> None:
    plain, scaled = tiny_run(), tiny_run(loss_scale=LossScale(scale=1024.0, patience=2))
    for start in (0, 8):
        step(plain, start=start)
        assert not step(scaled, start=start).skipped
    for one, other in zip(plain.state.model.parameters(), scaled.state.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert scaled.state.loss_scale == LossScale(scale=2048.0, calm=2, patience=2)  # doubled after a calm


def test_a_loss_that_is_not_finite_is_refused_before_the_update() -> None:
    tiny = tiny_run("optim.momentum=0.9")
    with torch.no_grad():
        next(tiny.state.model.parameters())[0, 0, 0, 0] = math.nan
    before = tiny.weights()
    tiny.state.step = 3
    with pytest.raises(LossNotFinite) as caught:
        step(tiny, epoch=1, start=16)
    first = tiny.batch(1, 16).micro[0].indices[0]
    assert_helpful(
        caught.value, "the loss is nan at step 3", "epoch 1, samples 16 to 23", f"images {first},", "optim.lr"
    )
    after = tiny.weights()
    assert all(torch.equal(after[name].nan_to_num(), before[name].nan_to_num()) for name in before)


def test_norms_are_measured_when_due_and_before_the_update() -> None:
    tiny = tiny_run("train.monitor=2")
    assert step(tiny).norms is None
    tiny.state.step = 1
    expected = {name: param.norm().item() for name, param in tiny.state.model.named_parameters()}
    before = {name: param.clone() for name, param in tiny.state.model.named_parameters()}
    norms = step(tiny, start=8).norms
    assert norms is not None
    assert norms.parameters == expected
    for name, param in tiny.state.model.named_parameters():
        moved = (param - before[name]).norm().item()
        assert norms.gradients[name] == pytest.approx(moved / tiny.config.optim.lr, rel=1e-3)


def test_dropout_depends_on_the_step_and_on_nothing_else() -> None:
    results = []
    for seed in (1, 2):
        tiny = tiny_run("train.micro_batches=2", model=network(drop=0.5))
        torch.manual_seed(seed)
        step(tiny)
        results.append(tiny.weights())
    assert same(*results)
    other = tiny_run("train.micro_batches=2", model=network(drop=0.5))
    other.state.step = 1
    step(other)
    assert not same(other.weights(), results[0])


def test_the_average_follows_the_weights_and_a_wish_to_stop_comes_back() -> None:
    tiny = tiny_run("optim.ema=0.9")
    assert tiny.state.ema is not None
    start = tiny.weights()
    measured = train_step(tiny.state, tiny.batch(), tiny.exchange, tiny.engine, stopping=lambda: True)
    assert measured.stop
    decay = 1 / 10  # of a young average, at step 0
    for name, average in tiny.state.ema.model.named_parameters():
        torch.testing.assert_close(average, decay * start[name] + (1 - decay) * tiny.weights()[name])
    assert measured.seconds >= 0
    assert measured.seconds == measured.data_s + measured.compute_s + measured.exchange_s + measured.update_s


def test_a_worker_without_samples_has_no_gradients_to_scale() -> None:
    scale = LossScale(scale=8.0, calm=3)
    assert scale.unscale([])
    assert scale == LossScale(scale=8.0, calm=3)
