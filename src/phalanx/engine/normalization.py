"""Batch norm in training together with the addition and the relu behind it: see native/norm.c, which does it.

PyTorch makes passes over the activation for each of them; where convolutions are quick, that is half of a step. Results
agree with PyTorch's within rounding.
"""

import ctypes
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from phalanx.native.build import load_library

_KINDS = {torch.float32: "f32", torch.bfloat16: "bf16"}


def normalize(norm: nn.Module, x: Tensor, added: Tensor | None = None, relu: bool = False) -> Tensor:
    """relu(norm(x) + added), as far as asked for."""
    if isinstance(norm, nn.BatchNorm2d) and _here(norm, x, added):
        assert norm.num_batches_tracked is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        y, mean, variance = cast(
            tuple[Tensor, Tensor, Tensor], _Normalize.apply(x, added, norm.weight, norm.bias, norm.eps, relu)
        )
        with torch.no_grad():
            count = x.numel() // x.shape[1]
            norm.num_batches_tracked.add_(1)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
        return y
    y = cast(Tensor, nn.BatchNorm2d.forward(norm, x) if isinstance(norm, nn.BatchNorm2d) else norm(x))
    if added is not None:
        y = y + added
    return F.relu(y, inplace=added is not None) if relu else y


def _here(norm: nn.BatchNorm2d, x: Tensor, added: Tensor | None) -> bool:
    """Whether native code can do it: a training step on a CPU, of what it knows."""
    return (
        norm.training
        and torch.is_grad_enabled()
        and norm.weight is not None
        and norm.bias is not None
        and norm.track_running_stats
        and norm.momentum is not None
        and norm.weight.dtype == norm.bias.dtype == torch.float32
        and x.device.type == "cpu"
        and x.dtype in _KINDS
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
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, (mean, variance, inverse) = torch.empty_like(x), torch.empty(3, x.shape[1], dtype=torch.float32).unbind()
        _call(
            "norm_forward",
            x,
            *map(_address, (x, added, weight, bias)),
            ctypes.c_float(epsilon),
            int(relu),
            *_sizes(x),
            *map(_address, (y, mean, variance, inverse)),
        )
        ctx.relu, ctx.added = relu, added is not None
        ctx.save_for_backward(x, y if relu and added is not None else None, weight, bias, mean, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, mean, inverse = ctx.saved_tensors
        grad = grad.to(x.dtype).contiguous(memory_format=torch.channels_last)
        of_x, of_weight, of_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        of_added = torch.empty_like(x) if ctx.added and ctx.relu else None
        _call(
            "norm_backward",
            x,
            *map(_address, (grad, x, y, weight, bias, mean, inverse)),
            int(ctx.relu),
            *_sizes(x),
            *map(_address, (of_x, of_added, of_weight, of_bias)),
        )
        return of_x, grad if ctx.added and not ctx.relu else of_added, of_weight, of_bias, None, None


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _sizes(x: Tensor) -> tuple[ctypes.c_int64, ctypes.c_int64]:
    return ctypes.c_int64(x.numel() // x.shape[1]), ctypes.c_int64(x.shape[1])


def _call(name: str, x: Tensor, *arguments: object) -> None:
    library = load_library("norm")
    assert library is not None, "asked for only where there is one"
    if getattr(library, f"{name}_{_KINDS[x.dtype]}")(*arguments, torch.get_num_threads()):
        raise MemoryError("no memory for the sums of a batch norm")
