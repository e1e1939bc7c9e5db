"""The learning rate as a pure function of the step, evaluated by the process that updates."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.config.durations import Duration
from phalanx.config.schema import ScheduleConfig
from phalanx.custom import is_reference, load
from phalanx.errors import UserError

_ONE_CYCLE_START = 1 / 25  # Smith & Topin's division factor, as in torch
_ONE_CYCLE_RISE = 0.3  # share of the run, if no warm-up is given


@dataclass(frozen=True)
class Schedule:
    """`schedule(step)` is the rate of update number `step`, from 0. Plain numbers: it can be sent to servers."""

    kind: str
    peak: float
    total: int
    warmup: int
    warmup_kind: str
    warmup_start: float
    milestones: tuple[int, ...]
    factor: float
    power: float
    floor: float
    swa_from: int | None = None  # from this step on the rate is `swa_rate`
    swa_rate: float = 0.0
    warmup_offset: int = 1  # 1: the first step is one step into warm-up, so that no rate is 0; 0: it has the start rate

    def __call__(self, step: int) -> float:
        if self.swa_from is not None and step >= self.swa_from:
            return self.swa_rate
        if step < self.warmup:
            return self.peak * self._rise(step)
        if is_reference(self.kind):
            return self._own(step)
        return self.peak * self._decay(step)

    def _own(self, step: int) -> float:
        """The rate by the user's function of (step, total steps, peak rate)."""
        rate = load(self.kind)(step, self.total, self.peak)
        if not isinstance(rate, int | float) or not math.isfinite(rate) or rate < 0:
            raise UserError(
                f"{self.kind} returned {rate!r} for step {step}",
                why="a learning rate is a finite number that is not negative",
                remedy="return a float",
            )
        return float(rate)

    def _rise(self, step: int) -> float:
        done = (step + (1 if self.kind == "one-cycle" else self.warmup_offset)) / self.warmup
        if self.kind == "one-cycle":
            return _ONE_CYCLE_START + (1 - _ONE_CYCLE_START) * (1 - math.cos(math.pi * done)) / 2
        shape = {"linear": done, "power": done**self.power, "sqrt": math.sqrt(done)}[self.warmup_kind]
        # Warm up to the decayed rate at that step, so that milestones inside the warm-up count.
        return float((self.warmup_start + (1 - self.warmup_start) * shape) * self._decay(self.warmup))

    def _decay(self, step: int) -> float:
        if is_reference(self.kind):
            return self._own(step) / self.peak
        done = min(1.0, (step - self.warmup) / max(1, self.total - self.warmup))
        if self.kind in ("cosine", "one-cycle"):
            return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2
        if self.kind == "polynomial":
            return float(self.floor + (1 - self.floor) * (1 - done) ** self.power)
        if self.kind == "step":
            return float(max(self.floor, self.factor ** sum(step >= place for place in self.milestones)))
        return 1.0


def make_schedule(
    config: ScheduleConfig, *, peak: float, total: int, in_steps: Callable[[Duration], int], micro_batches: int = 1
) -> Schedule:
    """Convert the durations of a schedule to steps. `peak` is the rate after linear scaling."""
    warmup = min(in_steps(config.warmup), total)
    if config.kind == "one-cycle" and warmup == 0:
        warmup = round(_ONE_CYCLE_RISE * total)
    milestones = [in_steps(place) for place in config.milestones]
    if config.every is not None:
        milestones += range(max(1, in_steps(config.every)), total, max(1, in_steps(config.every)))
    return Schedule(
        kind=config.kind,
        peak=peak,
        total=total,
        warmup=warmup,
        warmup_kind=config.warmup_kind,
        warmup_start=config.start_share(micro_batches),
        milestones=tuple(sorted(milestones)),
        factor=config.factor,
        power=config.power,
        floor=config.floor,
        warmup_offset=1 if isinstance(config.warmup_start, float) else 0,
    )


def scaled_rate(lr: float, lr_per: int | None, samples_per_step: int) -> float:
    """The linear scaling rule of arXiv 1706.02677: `lr` is for `lr_per` samples per step."""
    return lr if lr_per is None else lr * samples_per_step / lr_per
