"""One training step: forward and backward of a batch, then the update by the exchange."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from phalanx.data.base import Batch, MicroBatch
from phalanx.data.random import bits
from phalanx.engine.inputs import Inputs
from phalanx.engine.loss import counted
from phalanx.engine.objective import Objective, View
from phalanx.engine.state import TrainState
from phalanx.engine.totals import Totals
from phalanx.engine.views import ONE_VIEW, Views
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.machine.settings import Settings
from phalanx.scopes import scope

Announce = Callable[[Batch, int], None]  # a batch, and its step


class Guard(Protocol):
    """Something that counts while a step is computed, and decides by the counts of all workers."""

    def take(self) -> list[float]:
        """This worker's counts of the step, always as many."""
        ...

    def decide(self, counts: list[float]) -> str:
        """After the update, alike on all workers in lockstep. Returns a note for the user, or empty text."""
        ...


@dataclass(frozen=True)
class Engine:
    """The context that all steps and evaluations of a run share: settings, inputs, objective, seed."""

    settings: Settings
    inputs: Inputs
    objective: Objective  # of training
    k: int
    seed: int
    views: Views = ONE_VIEW  # of evaluation
    monitor: int = 0  # steps between norm measurements; 0 is off
    guard: Guard | None = None  # of the objective
    announce: Announce | None = None  # is told of each batch, a step before the step that uses it


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
    inside_backward_s: float = 0.0  # the part of exchange_s that was spent while backward ran
    note: str = ""  # what the objective's guard has decided

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
    sums: list[tuple[MicroBatch, Tensor]] = []
    taken = [micro for micro in batch.micro if micro.count or exchange.sync_bn]
    for micro in taken:
        if micro.count:
            sums.append((micro, _gradients(state, batch, micro, exchange, engine, last=micro is taken[-1])))
        else:
            _empty_pass(micro, exchange, engine, last=micro is taken[-1])
    if not taken:
        exchange.gradients.skip_step(engine.inputs.plain(batch.micro[0])[0])
    totals = _on_host(sums, state, batch)
    finite = True
    if state.loss_scale is not None:
        finite = state.loss_scale.unscale([p.grad for p in state.model.parameters() if p.grad is not None])
    computed = time.perf_counter()
    guarded = engine.guard.take() if engine.guard is not None else []
    with scope("synchronise"):
        stop, numbers = exchange.group.sync_step(stopping(), [*guarded, *totals.numbers()])
    guarded, samples, totals = numbers[: len(guarded)], totals.samples, Totals.of(numbers[len(guarded) :])
    synced_s = time.perf_counter() - computed
    if not finite:
        exchange.gradients.discard()
        return Measurements(
            totals, samples, stop, 0.0, None, batch.wait_s, computed - begin, synced_s, update_s=0.0, skipped=True
        )
    norms = measure_norms(state.model) if engine.monitor and (state.step + 1) % engine.monitor == 0 else None
    with scope("update"):
        applied = exchange.gradients.apply(state.step)
        if state.ema is not None:
            state.ema.update(state.model, state.step)
        if state.swa is not None:
            state.swa.update(state.model, state.step + 1)
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
        inside_backward_s=applied.inside_backward_s,
        note=engine.guard.decide(guarded) if engine.guard is not None else "",
    )


@torch.no_grad()
def measure_norms(model: nn.Module) -> Norms:
    """L2 norms by parameter name."""
    named = [(name, param) for name, param in model.named_parameters() if param.grad is not None]
    names = [name for name, _ in named]
    tensors = [param for _, param in named] + [param.grad for _, param in named if param.grad is not None]
    norms = torch.stack([tensor.norm().float() for tensor in tensors]).tolist() if tensors else []  # in one transfer
    return Norms(dict(zip(names, norms[: len(names)], strict=True)), dict(zip(names, norms[len(names) :], strict=True)))


def _gradients(
    state: TrainState, batch: Batch, micro: MicroBatch, exchange: Exchange, engine: Engine, last: bool
) -> Tensor:
    """Forward and backward of one micro-batch, weighted by its share of the step's samples.

    Returns its mean loss and its counts. On a GPU they may still be computed: to wait for them here would leave it idle
    while backward is started.
    """
    _seed_dropout(engine.seed, state.step, micro.number)
    with scope("inputs"):
        images, targets = engine.inputs.training(micro, batch.epoch, batch.start, state.step)
    view = View(images, targets, micro, batch.epoch, batch.start, state.step)
    with exchange.gradients.accumulate(last):
        with scope("forward"), engine.settings.autocast():
            logits, loss = engine.objective(view, exchange.gradients.forward)
        sums = torch.stack([loss.detach().double(), *counted(logits, targets.labels, engine.k).double()])
        if exchange.sends_in_backward or engine.settings.gpu is None:  # servers must not see a bad gradient
            sums = sums.cpu()
            _refuse_not_finite(float(sums[0]), state, batch, micro)
        weight = micro.count / batch.total
        if state.loss_scale is not None:
            weight *= state.loss_scale.scale
        with scope("backward"):
            (loss * weight).backward()
    return sums


def _on_host(sums: list[tuple[MicroBatch, Tensor]], state: TrainState, batch: Batch) -> Totals:
    """The sums of a step's micro-batches. They come in one transfer, before the update: a bad loss stops it."""
    totals = Totals()
    rows = torch.stack([each for _, each in sums]).tolist() if sums else []
    for (micro, _), (value, *counts) in zip(sums, rows, strict=True):
        _refuse_not_finite(value, state, batch, micro)
        totals.add(Totals.of([micro.count, value * micro.count, *counts]))
    return totals


def _empty_pass(micro: MicroBatch, exchange: Exchange, engine: Engine, last: bool) -> None:
    """Forward and backward of a micro-batch without samples: synchronised batch norm waits for every worker."""
    images, _ = engine.inputs.plain(micro)
    with exchange.gradients.accumulate(last):
        with scope("forward"), engine.settings.autocast():
            logits = exchange.gradients.forward(images)
        with scope("backward"):
            (logits.float().sum() * 0.0).backward()


def _seed_dropout(seed: int, step: int, micro: int) -> None:
    """Seed torch's global generator, which dropout and stochastic depth use, from the step and the micro-batch."""
    row = np.array([micro])
    torch.manual_seed(int(bits(seed, "dropout", step, row)[0, 0]) >> 1)


def _refuse_not_finite(value: float, state: TrainState, batch: Batch, micro: MicroBatch) -> None:
    if math.isfinite(value):
        return
    samples = ", ".join(str(index) for index in micro.indices[:4].tolist())
    raise LossNotFinite(
        f"the loss is {value} at step {state.step} (epoch {batch.epoch}, samples {batch.start} to "
        f"{batch.start + batch.total - 1} of its order, training images {samples} …)",
        why="most often the learning rate is too high for this batch size or precision; the update was not applied",
        remedy="lower optim.lr, lengthen schedule.warmup, set optim.clip_norm=1, or machine.precision=fp32",
    )


def refuse_nonfinite(model: nn.Module, step: int) -> None:
    """Refuse to save weights that are not finite: a finite loss may have an infinite gradient."""
    finite = [torch.isfinite(param).all() for param in model.parameters()]
    if finite and not bool(torch.stack(finite).all()):
        raise LossNotFinite(
            f"the weights are not finite after step {step}",
            why="a gradient overflowed although the loss was finite; nothing was saved",
            remedy="lower optim.lr, set optim.clip_norm=1, or machine.precision=fp32",
        )
