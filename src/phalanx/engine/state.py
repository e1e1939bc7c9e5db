"""The whole state of training in one dataclass: everything that a checkpoint holds."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from phalanx import cpu
from phalanx.data.base import Batch
from phalanx.engine.swa import Swa
from phalanx.engine.totals import Totals
from phalanx.runs.events import Eval
from phalanx.runs.score import TOP1, score_of

ALGORITHMS = "forms"  # the key of the convolution algorithms in a checkpoint


@dataclass
class Best:
    """The best evaluation so far. Checkpoints keep it."""

    top1: float | None  # None where a sample may have several labels
    topk: float | None
    step: int
    epoch: float
    metrics: dict[str, float] = field(default_factory=dict)  # mAP and F1 of several labels; the user's own numbers
    metric: str = TOP1  # what it is judged by: top1, or a name in `metrics`

    @property
    def score(self) -> float:
        return score_of(self.metric, self.top1, self.metrics)

    @classmethod
    def of(cls, found: Eval) -> Best:
        return cls(found.top1, found.topk, found.step, found.epoch, found.metrics, found.metric)


class Ema:
    """An exponential moving average of the weights: a second model, which is evaluated and saved."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        # At first the average follows quickly. Otherwise the random start would weigh for 1/(1-decay) steps.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - decay)
        self.copy_buffers(model)

    @torch.no_grad()
    def copy_buffers(self, model: nn.Module) -> None:
        """Copy the batch-norm statistics: they are averages already."""
        copy_buffers(self.model, model)


@torch.no_grad()
def copy_buffers(to: nn.Module, of: nn.Module) -> None:
    """Copy all buffers, those of a kind at once: a GPU takes as long to be told of each as to copy all."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for mine, theirs in zip(to.buffers(), of.buffers(), strict=True):
        targets, sources = kinds.setdefault(mine.dtype, ([], []))
        targets.append(mine)
        sources.append(theirs)
    for targets, sources in kinds.values():
        torch._foreach_copy_(targets, sources)


@dataclass
class LossScale:
    """Dynamic loss scaling for fp16: halve on overflow, double after `patience` steps without one."""

    scale: float = 65536.0
    calm: int = 0  # steps since the last overflow
    patience: int = 2000

    def unscale(self, grads: list[Tensor]) -> bool:
        """Divide the gradients by the scale. False on overflow: the step must be skipped."""
        if not grads:  # of a worker without samples in this step
            return True
        torch._foreach_mul_(grads, 1 / self.scale)
        finite = bool(torch.stack([norm.float() for norm in torch._foreach_norm(grads)]).isfinite().all())
        self.calm = self.calm + 1 if finite else 0
        if not finite:
            self.scale = max(1.0, self.scale / 2)
        elif self.calm % self.patience == 0:
            self.scale *= 2
        return finite


@dataclass
class TrainState:
    """Model, position and running sums. `start` is the position in the epoch's order: samples already used."""

    model: nn.Module
    ema: Ema | None = None
    swa: Swa | None = None
    loss_scale: LossScale | None = None
    step: int = 0
    epoch: int = 0
    start: int = 0
    epoch_totals: Totals = field(default_factory=Totals)
    interval: Totals = field(default_factory=Totals)
    used: list[list[int]] = field(default_factory=list)  # the interval's samples, see `note_used`
    lr_first: float | None = None  # the rate of the interval's first step
    best: Best | None = None
    evaluated_step: int = 0
    train_s: float = 0.0
    wall_s: float = 0.0
    callbacks: dict[str, Any] = field(default_factory=dict)  # the state of the user's callbacks, by name
    decided: dict[str, Any] = field(default_factory=dict)  # what the method of training has decided on the way

    @property
    def eval_model(self) -> nn.Module:
        """The model that is evaluated: an average of weights where there is one, or else the model itself."""
        if self.swa is not None and self.swa.count:
            return self.swa.model
        return self.ema.model if self.ema is not None else self.model

    def rescale(self, steps_per_epoch: int, samples_per_step: int, replays: int = 1) -> None:
        """Recompute the step after samples per step have changed. The position in the data stays."""
        before = max(1, self.step)
        self.step = self.epoch * steps_per_epoch + self.start // samples_per_step * replays
        self.evaluated_step = self.evaluated_step * self.step // before
        if self.best is not None:
            self.best.step = self.best.step * self.step // before

    def advance(self, batch: Batch) -> None:
        """Move the position past a batch, unless it is used again."""
        self.step += 1
        if batch.again:
            return
        self.start = batch.start + batch.total
        if batch.last:
            self.epoch, self.start = batch.epoch + 1, 0

    def note_used(self, batch: Batch) -> None:
        """Record the samples of a step as positions in an epoch's order: [epoch from 1, first, one after the last]."""
        if batch.again:
            return
        if self.used and self.used[-1][0] == batch.epoch + 1 and self.used[-1][2] == batch.start:
            self.used[-1][2] += batch.total
        else:
            self.used.append([batch.epoch + 1, batch.start, batch.start + batch.total])

    def move_to(self, step: int, steps_per_epoch: int, samples_per_step: int, replays: int = 1) -> None:
        """Set the position to the start of a step, for a worker that joins a running job."""
        self.step = self.evaluated_step = step
        before = self.epoch
        self.epoch, number = divmod(step, steps_per_epoch)
        if self.epoch != before:
            self.epoch_totals = Totals()  # the epoch that it left is not completed
        self.start = number // replays * samples_per_step

    def numbers(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "start": self.start,
            "epoch_totals": self.epoch_totals.saved(),
            "interval": self.interval.saved(),
            "used": self.used,
            "lr_first": self.lr_first,
            "best": vars(self.best) if self.best else None,
            "evaluated_step": self.evaluated_step,
            "loss_scale": vars(self.loss_scale) if self.loss_scale else None,
            "swa": self.swa.numbers() if self.swa else None,
            "train_s": self.train_s,
            "wall_s": self.wall_s,
            "callbacks": self.callbacks,
            "decided": self.decided,
            ALGORITHMS: cpu.state(self.model),
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Restore the numbers of a checkpoint."""
        self.step, self.epoch, self.start = numbers["step"], numbers["epoch"], numbers["start"]
        self.epoch_totals = Totals(**numbers["epoch_totals"])
        self.interval = Totals(**numbers["interval"])
        self.used = numbers.get("used", [])  # older checkpoints have none
        self.lr_first = numbers.get("lr_first")
        self.best = Best(**numbers["best"]) if numbers["best"] else None
        self.evaluated_step = numbers["evaluated_step"]
        if self.loss_scale is not None and numbers["loss_scale"]:
            self.loss_scale = LossScale(**numbers["loss_scale"])
        if self.swa is not None and numbers.get("swa"):  # older checkpoints have none
            self.swa.restore(numbers["swa"])
        self.train_s, self.wall_s = numbers["train_s"], numbers["wall_s"]
        self.callbacks = numbers.get("callbacks", {})  # younger than the format
        self.decided = numbers.get("decided", {})  # and so is this
        cpu.load(self.model, numbers.get(ALGORITHMS, {}))  # older checkpoints have none
