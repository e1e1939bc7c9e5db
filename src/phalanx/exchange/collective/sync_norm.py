"""Batch norm whose statistics are of all workers' samples, on a CPU; torch's own, which is faster, is for GPUs only.

Workers add up a layer's counts, sums and squares in forward, and two sums in backward. So every worker takes part in
every micro-batch, even without samples.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from phalanx.errors import UserError
from phalanx.exchange.collective.failures import collective_call
from phalanx.exchange.collective.peer_watch import PeerWatch

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class SumOverWorkers:
    """Adds a tensor up over all workers, in place."""

    group: Any
    peers: PeerWatch | None

    def __call__(self, tensor: Tensor) -> None:
        with collective_call(self.peers):
            dist.all_reduce(tensor, group=self.group)


def synchronise(model: nn.Module, device: torch.device, peers: PeerWatch | None = None) -> None:
    """Have the model's batch-norm layers use the statistics of all workers. Names and parameters stay the same.

    `peers` watches the other workers, to name one that is lost.
    """
    if device.type == "cuda":
        from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]  # knows timm's own layers too

        convert_sync_batchnorm(model)
        return
    # A group of its own: DDP starts sums of gradients in between, while backward runs.
    with collective_call(peers):
        group = dist.new_group()
    _replace(model, SumOverWorkers(group, peers))


def _replace(module: nn.Module, add_up: SumOverWorkers) -> None:
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, SyncNorm(child, add_up))
        else:
            _replace(child, add_up)


class SyncNorm(_BatchNorm):
    """Replaces a batch-norm layer; timm's, which also drop and activate, keep these parts."""

    def __init__(self, layer: _BatchNorm, add_up: SumOverWorkers) -> None:
        if type(layer) not in _PLAIN and [name for name, _ in layer.named_children()] != ["drop", "act"]:
            raise UserError(
                f"a layer of type {type(layer).__name__} cannot be synchronised",
                why="it is not known what it does besides batch norm",
                remedy="leave exchange.sync_bn out, or choose another model",
            )
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        for name, child in layer.named_children():
            self.add_module(name, child)
        self.train(layer.training)
        self._add_up = add_up

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            weight = self.weight if self.affine else torch.ones(self.num_features)
            bias = self.bias if self.affine else torch.zeros(self.num_features)
            x, mean, var, count = _Normalise.apply(x, weight, bias, self.eps, self._add_up)
            self._track(mean, var, float(count))
        else:
            x = super().forward(x)
        for child in self.children():
            x = child(x)
        return x

    def _check_input_dim(self, x: Tensor) -> None:
        """The layer that this one replaces was chosen for its input."""

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor, count: float) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None or count == 0:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(var * (count / max(1.0, count - 1)), share)  # unbiased, as torch keeps it


class _Normalise(torch.autograd.Function):
    """Normalised values, and the mean, the variance (biased) and the number of values behind them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, add_up: SumOverWorkers
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        channels, mine = x.shape[1], x.numel() // x.shape[1]
        # Sums in float64 of means in float32: the square of a mean is subtracted again without harm.
        sums = torch.zeros(2 * channels + 1, dtype=torch.float64)
        if mine:
            var, mean = torch.var_mean(x.float(), dim=[0, *range(2, x.dim())], correction=0)
            sums[:channels] = mean.double() * mine
            sums[channels:-1] = (var.double() + mean.double() ** 2) * mine
            sums[-1] = mine
        add_up(sums)
        given = sums[-1].clone()
        count = given.clamp_min(1)  # there may be no samples at all: then nothing comes out, and nothing is tracked
        mean64 = sums[:channels] / count
        mean, var = mean64.float(), (sums[channels:-1] / count - mean64**2).clamp_min(0).float()
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps), count)
        ctx.add_up, ctx.eps = add_up, eps
        ctx.mark_non_differentiable(mean, var, given)
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps), mean, var, given

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        if x.numel():
            # The kernel's own sums over these samples: of the gradient, and of its product with normalised values.
            _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
                grad, x, weight, None, None, mean, scale, True, ctx.eps, [False, True, True]
            )
        else:  # the kernel divides by the number of samples
            by_weight, by_bias = torch.zeros_like(weight), torch.zeros_like(weight)
        both = torch.stack([by_weight, by_bias]).double()
        ctx.add_up(both)
        with_values, alone = (both / count).float()
        shape = [1, -1] + [1] * (x.dim() - 2)
        gain = weight * scale
        by_x = x - mean.view(shape)  # float32
        by_x.mul_((-gain * scale * with_values).view(shape)).addcmul_(grad, gain.view(shape))
        by_x.sub_((gain * alone).view(shape))
        return by_x.to(x.dtype), by_weight, by_bias, None, None
