"""Batch norm in training, fused with the addition and the activation that follow it; computed by native/norm.c.

PyTorch passes over the tensor once for each of them; where convolutions are fast, that takes half of a step. Results
agree with PyTorch's within rounding.
"""

import ctypes
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from phalanx.models.fast import ShiftNorm
from phalanx.native.build import load_library
from phalanx.native.tensors import KINDS, address, call
from phalanx.scopes import layer

# native/norm.c numbers them in this order, from 1.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "silu": F.silu,
    "gelu": F.gelu,
}
_NUMBERS = {None: 0} | {name: number for number, name in enumerate(ACTIVATIONS, start=1)}


def is_norm(module: nn.Module | None) -> bool:
    """Whether `normalize` can compute this module."""
    return type(module) in (nn.BatchNorm2d, ShiftNorm)


def normalize(norm: nn.Module, x: Tensor, added: Tensor | None = None, act: str | None = None) -> Tensor:
    """act(norm(x) + added); `added` and `act` are optional. With `added`, the only activation is relu."""
    with layer(norm):
        return _normalize(norm, x, added, act)


def _normalize(norm: nn.Module, x: Tensor, added: Tensor | None, act: str | None) -> Tensor:
    if isinstance(norm, nn.BatchNorm2d | ShiftNorm) and _has_kernel(norm, x, added):
        assert norm.momentum is not None
        y, mean, variance = cast(
            tuple[Tensor, Tensor, Tensor], _Normalize.apply(x, added, norm.weight, norm.bias, norm.eps, act)
        )
        with torch.no_grad():
            count = x.numel() // x.shape[1]
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
            cast(Tensor, norm.running_mean).lerp_(mean, norm.momentum)
            cast(Tensor, norm.running_var).lerp_(variance * (count / (count - 1)), norm.momentum)
        return y
    y = cast(Tensor, nn.BatchNorm2d.forward(norm, x) if isinstance(norm, nn.BatchNorm2d) else norm(x))
    if added is not None:
        y = y + added
    return ACTIVATIONS[act](y) if act else y


def _has_kernel(norm: nn.BatchNorm2d | ShiftNorm, x: Tensor, added: Tensor | None) -> bool:
    """Whether native code can compute this: a training step on a CPU, with supported dtypes and layout."""
    return (
        norm.training
        and torch.is_grad_enabled()
        and norm.weight is not None
        and norm.bias is not None
        and norm.track_running_stats
        and norm.momentum is not None
        and norm.weight.dtype == norm.bias.dtype == torch.float32
        and x.device.type == "cpu"
        and x.dtype in KINDS
        and x.dim() == 4
        and x.shape[1] == norm.num_features
        and x.numel() > x.shape[1]
        and x.is_contiguous(memory_format=torch.channels_last)
        and (
            added is None
            or (
                isinstance(added, Tensor)
                and (added.shape, added.dtype) == (x.shape, x.dtype)
                and added.is_contiguous(memory_format=torch.channels_last)
            )
        )
        and load_library("norm") is not None
    )


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float, act: str | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, (mean, variance, inverse) = torch.empty_like(x), torch.empty(3, x.shape[1], dtype=torch.float32).unbind()
        call(
            "norm",
            f"norm_forward_{KINDS[x.dtype]}",
            *map(address, (x, added, weight, bias)),
            ctypes.c_float(epsilon),
            _NUMBERS[act],
            *_sizes(x),
            *map(address, (y, mean, variance, inverse)),
        )
        ctx.act, ctx.added = act, added is not None
        ctx.save_for_backward(x, y if act and added is not None else None, weight, bias, mean, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, mean, inverse = ctx.saved_tensors
        grad = grad.to(x.dtype).contiguous(memory_format=torch.channels_last)
        of_x, of_weight, of_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        of_added = torch.empty_like(x) if ctx.added and ctx.act else None
        call(
            "norm",
            f"norm_backward_{KINDS[x.dtype]}",
            *map(address, (grad, x, y, weight, bias, mean, inverse)),
            _NUMBERS[ctx.act],
            *_sizes(x),
            *map(address, (of_x, of_added, of_weight, of_bias)),
        )
        return of_x, grad if ctx.added and not ctx.act else of_added, of_weight, of_bias, None, None


def _sizes(x: Tensor) -> tuple[ctypes.c_int64, ctypes.c_int64]:
    return ctypes.c_int64(x.numel() // x.shape[1]), ctypes.c_int64(x.shape[1])
