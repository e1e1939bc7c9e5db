"""A network whose layers take as long as they are told, by sleeping: hosts that share cores do not disturb one another.

Its gradients and their exchange are real. Only computing is not: a layer sleeps in proportion to its arithmetic, in
backward twice as long as in forward, as on an accelerator, where the host's cores have nothing to do meanwhile.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

IMAGE_S = 0.025  # seconds of an image, forward and backward
_LAYERS = ((32, 1), (64, 2), (128, 1), (128, 2), (256, 1))  # channels, stride
_BACKWARD = 2 / 3  # of the time


class PacedNet(nn.Module):
    """Five convolutions and a classifier, 0.5 million parameters."""

    def __init__(self, num_classes: int, in_chans: int = 3, img_size: int = 16) -> None:
        super().__init__()
        layers: list[tuple[nn.Module, float]] = []
        channels, size = in_chans, img_size
        for width, stride in _LAYERS:
            size //= stride
            layers.append((nn.Conv2d(channels, width, 3, stride, 1), size * size * 9.0 * channels * width))
            channels = width
        arithmetic = sum(work for _, work in layers)
        parts: list[nn.Module] = []
        for layer, work in layers:
            parts += [_Paced(IMAGE_S * work / arithmetic), layer, nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*parts)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images).mean((2, 3)))  # type: ignore[no-any-return]


class _Paced(nn.Module):
    """Passes images and gradients on, after so many seconds for each image."""

    def __init__(self, image_s: float) -> None:
        super().__init__()
        self.image_s = image_s

    def forward(self, images: Tensor) -> Tensor:
        return _Sleep.apply(images, self.image_s)  # type: ignore[no-any-return]


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, image_s: float) -> Tensor:
        ctx.image_s = image_s
        _sleep(images, (1 - _BACKWARD) * image_s)
        return images.view_as(images)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None]:
        _sleep(gradients, _BACKWARD * ctx.image_s)
        return gradients, None


def _sleep(images: Tensor, image_s: float) -> None:
    if images.device.type != "meta":  # the planner counts operations there
        time.sleep(image_s * len(images))
