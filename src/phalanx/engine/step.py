"""One training step: forward and backward of a batch, then the update by the exchange."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from phalanx.data.base import Batch, MicroBatch
from phalanx.data.random import bits
from phalanx.engine.inputs import Inputs
from phalanx.engine.loss import Loss, counted, training_loss
from phalanx.engine.state import TrainState
from phalanx.engine.totals import Totals
from phalanx.engine.views import ONE_VIEW, Views
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.machine.settings import Settings


@dataclass(frozen=True)
class Engine:
    """The context that all steps and evaluations of a run share: settings, inputs, loss, seed."""

    settings: Settings
    inputs: Inputs
    loss: Loss  # of training
    k: int
    seed: int
    views: Views = ONE_VIEW  # of evaluation
    monitor: int = 0  # steps between norm measurements; 0 is off


@dataclass(frozen=True)
class Norms:
    """The norm of each parameter and of its gradient, before the update."""

    parameters: dict[str, float]
    gradients: dict[str, float]


@dataclass(frozen=True)
class Measurements:
    """The result of one step: sums, learning rate and times."""

    totals: Totals  # of all workers, if they work in lockstep
    samples: int  # of this worker
    stop: bool  # whether a worker wants to stop after this step
    lr: float
    grad_norm: float | None
    data_s: float
    compute_s: float
    exchange_s: float
    update_s: float
    skipped: bool = False  # fp16 overflow: no update
    norms: Norms | None = None
    bytes_sent: int = 0
    bytes_received: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.data_s + self.compute_s + self.exchange_s + self.update_s


class LossNotFinite(UserError):
    """The loss is NaN or infinite. The step stops before its update."""


def train_step(
    state: TrainState, batch: Batch, exchange: Exchange, engine: Engine, stopping: Callable[[], bool] = bool
) -> Measurements:
    """Compute the gradients of a batch and update the parameters of the state's model.

    Workers synchronise before the update. So a worker that applies it knows the whole step, and a worker that finds
    another one lost has applied nothing of the step.
    """
    begin = time.perf_counter()
    totals = Totals()
    taken = [micro for micro in batch.micro if micro.count or exchange.sync_bn]
    for micro in taken:
        if micro.count:
            totals.add(_gradients(state, batch, micro, exchange, engine, last=micro is taken[-1]))
        else:
            _empty_pass(micro, exchange, engine, last=micro is taken[-1])
    if not taken:
        exchange.gradients.skip_step(engine.inputs.plain(batch.micro[0])[0])
    finite = True
    if state.loss_scale is not None:
        finite = state.loss_scale.unscale([p.grad for p in state.model.parameters() if p.grad is not None])
    computed = time.perf_counter()
    stop, numbers = exchange.group.sync_step(stopping(), totals.numbers())
    samples, totals = totals.samples, Totals.of(numbers)
    synced_s = time.perf_counter() - computed
    if not finite:
        exchange.gradients.discard()
        return Measurements(
            totals, samples, stop, 0.0, None, batch.wait_s, computed - begin, synced_s, update_s=0.0, skipped=True
        )
    norms = measure_norms(state.model) if engine.monitor and (state.step + 1) % engine.monitor == 0 else None
    applied = exchange.gradients.apply(state.step)
    if state.ema is not None:
        state.ema.update(state.model, state.step)
    return Measurements(
        totals,
        samples,
        stop,
        applied.lr,
        applied.grad_norm,
        data_s=batch.wait_s,
        compute_s=computed - begin - applied.inside_backward_s,
        exchange_s=applied.exchange_s + synced_s,
        update_s=time.perf_counter() - computed - synced_s - (applied.exchange_s - applied.inside_backward_s),
        norms=norms,
        bytes_sent=applied.bytes_sent,
        bytes_received=applied.bytes_received,
        details=applied.details,
    )


@torch.no_grad()
def measure_norms(model: nn.Module) -> Norms:
    """L2 norms by parameter name."""
    named = [(name, param) for name, param in model.named_parameters() if param.grad is not None]
    return Norms(
        {name: float(param.norm()) for name, param in named},
        {name: float(param.grad.norm()) for name, param in named if param.grad is not None},
    )


def _gradients(
    state: TrainState, batch: Batch, micro: MicroBatch, exchange: Exchange, engine: Engine, last: bool
) -> Totals:
    """Forward and backward of one micro-batch, weighted by its share of the step's samples."""
    _seed_dropout(engine.seed, state.step, micro.number)
    images, targets = engine.inputs.training(micro, batch.epoch, batch.start, state.step)
    with exchange.gradients.accumulate(last):
        with engine.settings.autocast():
            logits = exchange.gradients.forward(images)
            loss = training_loss(logits, targets, engine.loss)
        # One transfer brings loss and counts to the host; the loss is needed there before the update anyway.
        value, *counts = torch.stack(
            [loss.detach().double(), *counted(logits, targets.labels, engine.k).double()]
        ).tolist()
        if not math.isfinite(value):
            raise _not_finite(value, state, batch, micro)
        weight = micro.count / batch.total
        if state.loss_scale is not None:
            weight *= state.loss_scale.scale
        (loss * weight).backward()
    return Totals.of([micro.count, value * micro.count, *counts])


def _empty_pass(micro: MicroBatch, exchange: Exchange, engine: Engine, last: bool) -> None:
    """Forward and backward of a micro-batch without samples: synchronised batch norm waits for every worker."""
    images, _ = engine.inputs.plain(micro)
    with exchange.gradients.accumulate(last):
        with engine.settings.autocast():
            logits = exchange.gradients.forward(images)
        (logits.float().sum() * 0.0).backward()


def _seed_dropout(seed: int, step: int, micro: int) -> None:
    """Seed torch's global generator, which dropout and stochastic depth use, from the step and the micro-batch."""
    row = torch.tensor([micro]).numpy()
    torch.manual_seed(int(bits(seed, "dropout", step, row)[0, 0]) >> 1)


def _not_finite(value: float, state: TrainState, batch: Batch, micro: MicroBatch) -> LossNotFinite:
    samples = ", ".join(str(index) for index in micro.indices[:4].tolist())
    return LossNotFinite(
        f"the loss is {value} at step {state.step} (epoch {batch.epoch}, samples {batch.start} to "
        f"{batch.start + batch.total - 1} of its order, training images {samples} …)",
        why="most often the learning rate is too high for this batch size or precision; the update was not applied",
        remedy="lower optim.lr, lengthen schedule.warmup, set optim.clip_norm=1, or machine.precision=fp32",
    )
