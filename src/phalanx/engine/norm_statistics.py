"""Batch-norm statistics of given weights, computed from the training data: the same for any number of workers."""

from collections.abc import Generator
from contextlib import closing

import torch
from torch import Tensor, nn

from phalanx.data.base import Batch
from phalanx.engine.step import Engine
from phalanx.exchange.base import WorkerGroup


class _Moments:
    """Count, sum and sum of squares of what a layer normalises, by channel."""

    def __init__(self, norm: nn.Module) -> None:
        self.norm = norm
        width = norm.get_buffer("running_mean").numel()
        self.count, self.sum, self.squares = 0.0, torch.zeros(width).double(), torch.zeros(width).double()

    def add(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """A forward pre-hook."""
        (x,) = inputs
        if not x.numel():
            return
        var, mean = torch.var_mean(x.float(), [dim for dim in range(x.dim()) if dim != 1], correction=0)
        var, mean = var.double().cpu(), mean.double().cpu()
        count = x.numel() // x.shape[1]
        self.count += count
        self.sum += count * mean
        self.squares += count * (var + mean * mean)

    def numbers(self) -> list[float]:
        return [self.count, *self.sum.tolist(), *self.squares.tolist()]

    def write(self, numbers: list[float]) -> None:
        """Set the statistics of the layer, from the numbers of all workers."""
        count, width = numbers[0], len(self.sum)
        if not count:
            return  # it is no part of a pass in eval mode, as an auxiliary classifier or a second student
        mean = torch.tensor(numbers[1 : 1 + width], dtype=torch.float64) / count
        square = torch.tensor(numbers[1 + width :], dtype=torch.float64) / count
        var = (square - mean * mean).clamp_min(0) * (count / max(1.0, count - 1))
        self.norm.get_buffer("running_mean").copy_(mean)
        self.norm.get_buffer("running_var").copy_(var)


@torch.no_grad()
def compute_statistics(model: nn.Module, batches: Generator[Batch], engine: Engine, group: WorkerGroup) -> None:
    """Mean and variance of all inputs of each batch norm, while each normalises by its batch. All workers call this.

    `batches` are this worker's. Sums over workers are in double precision, so they hardly depend on who adds what.
    """
    moments = [_Moments(module) for module in model.modules() if _has_statistics(module)]
    model.eval()
    for each in moments:
        each.norm.train()
    moments = [each for each in moments if each.norm.training]  # a frozen one keeps its statistics
    hooks = [each.norm.register_forward_pre_hook(each.add) for each in moments]
    try:
        with closing(batches):
            for batch in batches if moments else ():
                for micro in batch.micro:
                    with engine.settings.autocast():
                        model(engine.inputs.plain(micro)[0])
    finally:
        for hook in hooks:
            hook.remove()
        model.eval()
    if not moments:
        return
    sums = group.sum([number for each in moments for number in each.numbers()])
    for each in moments:
        size = len(each.numbers())
        each.write(sums[:size])
        sums = sums[size:]


def _has_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm that keeps statistics, of torch, timm or our own."""
    return getattr(module, "running_mean", None) is not None and getattr(module, "running_var", None) is not None
