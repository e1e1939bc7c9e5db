"""cifar_fast: a small network that learns CIFAR-sized images in few epochs.

After Jordan 2024 (arXiv:2404.00498) and the speed runs before it: the first layer whitens patches of the data and is
computed, not learned; convolutions start as the identity; norms have no scale, and their shifts learn faster than the
weights; the network ends in a maximum over each map, not a mean.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx.errors import UserError

NAME = "cifar_fast"
STAGE_WIDTHS = (64, 256, 256)
SMALLEST_IMAGE = 9  # halved three times after the first layer, it must leave a pixel
PATCH = 2
NORM_MOMENTUM = 0.3  # runs are short, so running statistics must follow quickly
# Shifts are multiplied by this, so SGD moves them by its square: 64 times the rate of a weight.
SHIFT_SCALE = 8.0
LOGIT_SCALE = 1 / 9
WHITENING_FLOOR = 5e-4  # added to each variance, so that noise is not amplified


def build_fast(
    *, num_classes: int, channels: int, image_size: int, width: float = 1.0, edge: bool = False
) -> "FastNet":
    """The network, with every stage `width` times as wide as published.

    With `edge`, patches also begin in the last row and column: maps of 32-pixel images then have 32, 16, 8 and 4 pixels
    a side instead of 31, 15, 7 and 3. With Winograd's tiles of 4 both take about the same time.
    """
    if not isinstance(width, int | float) or width <= 0:
        raise UserError(f"model.options.width={width!r} is not a number above 0")
    if not isinstance(edge, bool):
        raise UserError(f"model.options.edge={edge!r} is neither true nor false")
    if image_size < SMALLEST_IMAGE:
        raise UserError(
            f"{NAME} cannot take images of {image_size} pixels",
            why=f"three of its layers halve the image, which needs {SMALLEST_IMAGE} pixels",
            remedy=f"data.image_size={SMALLEST_IMAGE} or more, or model.name=cifar_resnet20",
        )
    return FastNet(channels, num_classes, tuple(max(1, round(each * width)) for each in STAGE_WIDTHS), edge)


class FastNet(nn.Module):
    """Whitened patches, three stages, maximum over each map, classifier."""

    def __init__(self, channels: int, num_classes: int, widths: tuple[int, ...], edge: bool) -> None:
        super().__init__()
        self.edge = edge
        directions = channels * PATCH * PATCH
        # A buffer, not a parameter: it has no gradient to compute or to exchange.
        self.register_buffer("whitening", torch.eye(directions).reshape(directions, channels, PATCH, PATCH))
        self.whitened_shift = nn.Parameter(torch.zeros(2 * directions))
        stages, width_in = [], 2 * directions
        for width in widths:
            stages.append(Stage(width_in, width))
            width_in = width
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(width_in, num_classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        whitening = cast(Tensor, self.whitening)
        if self.edge:
            images = F.pad(images, (0, 1, 0, 1), mode="reflect")
        # Each direction and its opposite: the activation keeps one half of each.
        maps = F.conv2d(images, torch.cat([whitening, -whitening]).to(images.dtype), self.whitened_shift)
        maps = self.stages(F.gelu(maps))
        return cast(Tensor, self.fc(maps.amax((2, 3)))) * LOGIT_SCALE

    @torch.no_grad()
    def fit_whitening(self, images: Tensor) -> None:
        """Compute the first layer from normalised images, so that its outputs are uncorrelated."""
        whitening = cast(Tensor, self.whitening)
        patches = F.unfold(images, PATCH).transpose(1, 2).reshape(-1, whitening.shape[0]).double()
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        scaled = directions.T / (variances + WHITENING_FLOOR).sqrt()[:, None]
        whitening.copy_(scaled.flip(0).reshape(whitening.shape))


class Stage(nn.Module):
    """conv, max pool, norm, activation; conv, norm, activation."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _identity_conv(width_in, width), ShiftNorm(width)
        self.conv2, self.norm2 = _identity_conv(width, width), ShiftNorm(width)

    def forward(self, maps: Tensor) -> Tensor:
        maps = F.gelu(self.norm1(F.max_pool2d(self.conv1(maps), 2)))
        return F.gelu(self.norm2(self.conv2(maps)))


class ShiftNorm(nn.Module):
    """Batch norm with a fixed scale of 1 and a shift that learns quickly; with the attributes of BatchNorm2d."""

    eps = 1e-5
    momentum = NORM_MOMENTUM
    track_running_stats = True
    num_batches_tracked = None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width
        self.shift = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    @property
    def weight(self) -> Tensor:
        return torch.ones_like(cast(Tensor, self.running_mean))

    @property
    def bias(self) -> Tensor:
        return self.shift * SHIFT_SCALE

    def forward(self, maps: Tensor) -> Tensor:
        mean, var = cast(Tensor, self.running_mean), cast(Tensor, self.running_var)
        return F.batch_norm(maps, mean, var, self.weight, self.bias, self.training, self.momentum, self.eps)


def _identity_conv(width_in: int, width: int) -> nn.Conv2d:
    """A convolution whose first filters start as the identity; the rest start at random."""
    conv = nn.Conv2d(width_in, width, kernel_size=3, padding=1, bias=False)
    nn.init.dirac_(conv.weight.data[:width_in])
    return conv
