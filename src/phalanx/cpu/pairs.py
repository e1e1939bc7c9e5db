"""Weight gradients of bf16 convolutions, computed by native/conv_bf16.c from pairs of images."""

import ctypes

import torch
from torch import Tensor

from phalanx.native.build import load_library
from phalanx.native.tensors import address, call

_CHANNELS = 16  # in fewer, most of a vector would be empty


def fits(weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Whether this convolution can have its weight gradient so.

    Without AVX512-BF16 it is slower, and agrees within rounding: the instruction also takes denormals for zero.
    """
    return (
        weight.dtype == torch.bfloat16
        and weight.device.type == "cpu"
        and min(weight.shape[:2]) >= _CHANNELS
        and stride[0] == stride[1]
        and padding[0] == padding[1]
        and load_library("conv_bf16") is not None
    )


def weight_gradient(grad: Tensor, x: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """Gradient of a convolution's weight, float32 and channels_last."""
    images, inner, height, width = x.shape
    outer = grad.shape[1]
    gradient = torch.empty(outer, *kernel, inner, dtype=torch.float32)
    sizes = (images, height, width, inner, outer, *kernel, stride, padding)
    call(
        "conv_bf16",
        "bf16_weight",
        *map(address, (x, grad, gradient)),
        *map(ctypes.c_int64, sizes),
    )
    return gradient.permute(0, 3, 1, 2)
