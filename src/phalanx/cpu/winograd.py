"""Winograd's algorithm for 3×3 convolutions and their gradients, computed by native/winograd.c."""

import ctypes

import torch
from torch import Tensor

from phalanx.native.build import load_library
from phalanx.native.tensors import address, call

_CHANNELS = 8  # per vector


def fits(weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Whether this convolution can use Winograd's algorithm here."""
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and tuple(weight.shape[2:]) == (3, 3)
        and stride == (1, 1)
        and padding in ((0, 0), (1, 1), (2, 2))
        and all(channels % _CHANNELS == 0 for channels in weight.shape[:2])
        and load_library("winograd") is not None
    )


def convolve(x: Tensor, weight: Tensor, padding: int) -> Tensor:
    """F.conv2d for channels_last tensors."""
    into, out, down, across = (weight.stride(each) for each in (1, 0, 2, 3))
    return _convolve(x, weight, (into, out, down, across), len(weight), padding, turned=False)


def data_gradient(grad: Tensor, weight: Tensor, padding: int) -> Tensor:
    """Gradient of a convolution's input: the output's gradient, convolved with the flipped weight."""
    return _convolve(grad, weight, weight.stride(), weight.shape[1], 2 - padding, turned=True)


def _convolve(x: Tensor, weight: Tensor, strides: tuple[int, ...], outer: int, padding: int, turned: bool) -> Tensor:
    images, inner, height, width = x.shape
    size = (images, outer, height + 2 * padding - 2, width + 2 * padding - 2)
    y = torch.empty(size, dtype=torch.float32, memory_format=torch.channels_last)
    call(
        "winograd",
        "winograd_convolve",
        address(x),
        address(weight),
        (ctypes.c_int64 * 4)(*strides),
        int(turned),
        address(y),
        *(ctypes.c_int64(each) for each in (images, height, width, inner, outer, padding)),
    )
    return y


def weight_gradient(grad: Tensor, x: Tensor, padding: int) -> Tensor:
    """Gradient of a convolution's weight, channels_last."""
    images, inner, height, width = x.shape
    outer = grad.shape[1]
    gradient = torch.empty(outer, 3, 3, inner, dtype=torch.float32)
    call(
        "winograd",
        "winograd_weight",
        address(x),
        address(grad),
        address(gradient),
        *(ctypes.c_int64(each) for each in (images, height, width, inner, outer, padding)),
    )
    return gradient.permute(0, 3, 1, 2)
