"""Inception with batch normalisation (Ioffe & Szegedy 2015, arXiv:1502.03167), and a small one for tiny images.

    inception_bn        table of the paper's appendix: ten modules, images of about 224 pixels
    inception_bn_small  for images of about 28 pixels: modules of a 1×1 and a 3×3 convolution, as in Zhang et al.
                        2017 (arXiv:1611.03530, figure 3)

Convolutions have no bias: the norm after each would remove it.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from phalanx.models.small import ImageNetwork

# widths of a module's branches: 1×1; reduction and 3×3; reduction and two 3×3; pool and its projection
MODULES: tuple[tuple[int, int, int, int, int, str, int], ...] = (
    (64, 64, 64, 64, 96, "mean", 32),
    (64, 64, 96, 64, 96, "mean", 64),
    (0, 128, 160, 64, 96, "halve", 0),
    (224, 64, 96, 96, 128, "mean", 128),
    (192, 96, 128, 96, 128, "mean", 128),
    (160, 128, 160, 128, 160, "mean", 128),
    (96, 128, 192, 160, 192, "mean", 128),
    (0, 128, 192, 192, 256, "halve", 0),
    (352, 192, 320, 160, 224, "mean", 128),
    (352, 192, 320, 192, 224, "max", 128),
)
SMALL_STEM = 96
# widths of the 1×1 and the 3×3 convolution; 0 where the 3×3 convolution and a pool halve the maps instead
SMALL_MODULES = (
    ((32, 32), (32, 48), (0, 80)),
    ((112, 48), (96, 64), (80, 80), (48, 96), (0, 96)),
    ((176, 160), (176, 160)),
)


def build_inception_bn(*, num_classes: int, channels: int, image_size: int, drop: float = 0.0) -> ImageNetwork:
    """The network of the paper. Strided layers pad, so it takes images of any size."""
    layers: list[nn.Module] = [
        ConvNorm(channels, 64, 7, stride=2),
        nn.MaxPool2d(3, stride=2, padding=1),
        ConvNorm(64, 64, 1),
        ConvNorm(64, 192, 3),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    width = 192
    for module in MODULES:
        layers.append(_module(width, *module))
        width = _width_out(width, *module)
    return ImageNetwork(_averaged(layers), width, num_classes, drop)


def build_inception_bn_small(*, num_classes: int, channels: int, image_size: int, drop: float = 0.0) -> ImageNetwork:
    """Three stages at full, half and quarter size."""
    layers: list[nn.Module] = [ConvNorm(channels, SMALL_STEM, 3)]
    width = SMALL_STEM
    for stage in SMALL_MODULES:
        for conv1, conv3 in stage:
            if conv1:
                layers.append(Branches([ConvNorm(width, conv1, 1), ConvNorm(width, conv3, 3)]))
                width = conv1 + conv3
            else:
                layers.append(Branches([ConvNorm(width, conv3, 3, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]))
                width += conv3
    return ImageNetwork(_averaged(layers), width, num_classes, drop)


def _averaged(layers: Sequence[nn.Module]) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _module(
    width: int, direct: int, reduce3: int, conv3: int, reduce33: int, conv33: int, pool: str, projected: int
) -> nn.Module:
    stride = 2 if pool == "halve" else 1
    branches: list[nn.Module] = [ConvNorm(width, direct, 1)] if direct else []
    branches.append(nn.Sequential(ConvNorm(width, reduce3, 1), ConvNorm(reduce3, conv3, 3, stride=stride)))
    branches.append(
        nn.Sequential(
            ConvNorm(width, reduce33, 1), ConvNorm(reduce33, conv33, 3), ConvNorm(conv33, conv33, 3, stride=stride)
        )
    )
    kind = nn.AvgPool2d if pool == "mean" else nn.MaxPool2d
    pooled = kind(3, stride=stride, padding=1)
    branches.append(nn.Sequential(pooled, ConvNorm(width, projected, 1)) if projected else pooled)
    return Branches(branches)


def _width_out(
    width: int, direct: int, reduce3: int, conv3: int, reduce33: int, conv33: int, pool: str, projected: int
) -> int:
    return direct + conv3 + conv33 + (projected or width)  # a pool that is not projected keeps all maps


class Branches(nn.Module):
    """Several branches of the same input, concatenated."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([branch(maps) for branch in self.branches], dim=1)


class ConvNorm(nn.Module):
    """conv, norm, relu; with stride 1 the size stays."""

    def __init__(self, width_in: int, width: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.act(self.norm(self.conv(maps))))
