"""Stochastic weight averaging (`optim.swa`, arXiv 1803.05407): the equal average of the weights at some steps."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from phalanx.config.schema import SwaConfig
from phalanx.engine.step_plan import StepPlan
from phalanx.errors import UserError


class Swa:
    """A second model with the averaged weights, which is evaluated and saved once it has any.

    Its batch-norm statistics are those of no model that was trained, so they are computed anew from the training data
    before it is used (`engine.norm_statistics`).
    """

    def __init__(self, model: nn.Module, start: int, every: int) -> None:
        """The first weights are those after step `start`."""
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.count = 0  # weights that the average has
        self.measured = 0  # weights that it had when its batch-norm statistics were computed
        self._start, self._every = start, every

    @property
    def stale(self) -> bool:
        """Whether its batch-norm statistics are still to be computed."""
        return self.measured != self.count

    @torch.no_grad()
    def update(self, model: nn.Module, steps_done: int) -> None:
        """After each step: take its weights into the average, if it is one of those steps."""
        if steps_done < self._start or (steps_done - self._start) % self._every:
            return
        self.count += 1
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 / self.count)
        for mine, theirs in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)

    def numbers(self) -> dict[str, int]:
        return {"count": self.count, "measured": self.measured}

    def restore(self, numbers: Mapping[str, Any]) -> None:
        self.count, self.measured = int(numbers["count"]), int(numbers["measured"])


def make_swa(config: SwaConfig, model: nn.Module, plan: StepPlan) -> Swa | None:
    """The average that the configuration asks for, if it does."""
    if config.start is None:
        return None
    start = max(1, plan.in_steps(config.start))
    if start > plan.total_steps:
        raise UserError(
            f"optim.swa.start={config.start} is after the end of training",
            why=f"it is step {start}, and training has {plan.total_steps}",
            remedy="optim.swa.start=75%",
        )
    return Swa(model, start, max(1, plan.in_steps(config.every)))
