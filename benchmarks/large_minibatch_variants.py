"""User code for `benchmarks.large_minibatch`: constant warm-up, and the two mistakes that arXiv 1706.02677 warns of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

WARMUP_SHARE = 1 / 6  # of training
MILESTONES = (1 / 2, 3 / 4)  # a tenth of the rate from there on
FACTOR = 16  # how many times larger the large batch is


def constant_warmup(step: int, total: int, peak: float) -> float:
    """The small batch's rate at first, and then the whole rate at once (section 2.2 of the paper)."""
    done = step / total
    if done < WARMUP_SHARE:
        return peak / FACTOR
    return peak * 0.1 ** sum(done >= place for place in MILESTONES)


def per_worker_mean(logits: Tensor, labels: Tensor, workers: int = FACTOR) -> Tensor:
    """A mistake: the sum of the workers' means is as many times too large as there are workers (remark 3)."""
    return workers * F.cross_entropy(logits, labels)


class RateInsideMomentum(torch.optim.Optimizer):
    """A mistake: momentum sums up rate·gradient, and is not corrected when the rate changes (remark 2)."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad + group["weight_decay"] * parameter
                summed = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                summed.mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
                parameter.sub_(summed)
