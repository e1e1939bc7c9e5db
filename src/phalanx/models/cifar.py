"""The CIFAR networks that timm lacks: ResNets of depth 6n+2, their pre-activation form, and wide ones.

    cifar_resnetD   He et al. 2015 (arXiv:1512.03385), D = 6n+2, shortcuts without parameters ("option A")
    cifar_resnet18  the ImageNet ResNet-18 with a 3×3 stem and no max-pool, as people train it on CIFAR
    cifar_preactD   He et al. 2016 (arXiv:1603.05027), D = 6n+2, basic blocks
    wrnD_K          Zagoruyko & Komodakis 2016 (arXiv:1605.07146), D = 6n+4, K times wider

They take any number of channels and classes and any image size from 8 up; the classifier is called `fc`.
"""

import re
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx.errors import UserError

LISTED = (
    "cifar_resnet18",
    *(f"cifar_resnet{depth}" for depth in (20, 32, 44, 56, 110)),
    *(f"cifar_preact{depth}" for depth in (20, 32, 44, 56, 110)),
    "wrn16_8",
    "wrn28_10",
    "wrn40_4",
)
IMAGE_SIZE = 32  # what they were designed for

NAME = re.compile(r"(?P<family>cifar_resnet|cifar_preact|wrn)(?P<depth>\d+)(?:_(?P<widen>\d+))?")


def is_ours(name: str) -> bool:
    """Whether a name has the form of one of these networks, be its depth valid or not."""
    match = NAME.fullmatch(name)
    return match is not None and (match["family"] == "wrn") == (match["widen"] is not None)


def build_cifar(
    name: str,
    *,
    num_classes: int,
    channels: int,
    drop: float = 0.0,
    drop_path: float = 0.0,
    width: float = 1.0,
    dropout: float = 0.0,
) -> "CifarNet":
    """The network of that name.

    `width` multiplies every layer's channels, `drop` is dropout before the classifier, `drop_path` the
    stochastic depth of the last block, `dropout` the share dropped between the two convolutions of a block.
    """
    match = NAME.fullmatch(name)
    assert match is not None, f"{name} is not one of ours"
    if not isinstance(width, int | float) or width <= 0:
        raise UserError(f"model.options.width={width!r} is not a positive number")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise UserError(f"model.options.dropout={dropout!r} is not a share from 0 up to 1")

    family, depth = match["family"], int(match["depth"])
    block: Callable[..., Block] = BasicBlock if family == "cifar_resnet" else PreactBlock
    if name == "cifar_resnet18":
        stem, widths, blocks_per_stage, projection = 64, (64, 128, 256, 512), 2, True
    elif family == "wrn":
        widen = int(match["widen"])
        blocks_per_stage = _blocks_per_stage(name, depth, layers_outside=4)
        if widen == 0:
            raise UserError(f"{name} has no channels", why="K in wrnD_K is a factor from 1 up", remedy=f"wrn{depth}_4")
        stem, widths, projection = 16, (16 * widen, 32 * widen, 64 * widen), True
    else:
        blocks_per_stage = _blocks_per_stage(name, depth, layers_outside=2)
        stem, widths, projection = 16, (16, 32, 64), False

    return CifarNet(
        block,
        stem=_scaled(stem, width),
        widths=[_scaled(channels, width) for channels in widths],
        blocks_per_stage=blocks_per_stage,
        projection=projection,
        channels=channels,
        num_classes=num_classes,
        drop=drop,
        drop_path=drop_path,
        dropout=dropout,
    )


def _blocks_per_stage(name: str, depth: int, *, layers_outside: int) -> int:
    """Three stages of n blocks of two layers, and the few layers outside of them: depth = 6n + 2 (or 4)."""
    blocks, rest = divmod(depth - layers_outside, 6)
    if rest or blocks < 1:
        below = max(6 + layers_outside, depth - rest)
        valid = ", ".join(str(6 * n + layers_outside) for n in range(1, 6))
        also = " (and cifar_resnet18, which is built differently)" if name.startswith("cifar_resnet") else ""
        raise UserError(
            f"{name}: there is no such network of depth {depth}",
            why=f"its depth is 6n+{layers_outside}: {valid} …{also}",
            remedy=" or ".join(name.replace(str(depth), str(valid), 1) for valid in (below, below + 6)),
        )
    return blocks


def _scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width))


class CifarNet(nn.Module):
    """Stem, stages of residual blocks (each stage after the first halves the image), mean, classifier."""

    def __init__(
        self,
        block: "Callable[..., Block]",
        *,
        stem: int,
        widths: list[int],
        blocks_per_stage: int,
        projection: bool,
        channels: int,
        num_classes: int,
        drop: float,
        drop_path: float,
        dropout: float,
    ) -> None:
        super().__init__()
        preact = block is PreactBlock
        self.num_classes = num_classes
        self.conv = conv3x3(channels, stem)
        # a pre-activation block normalises its own input, so there the first norm is the first block's
        self.bn = nn.BatchNorm2d(widths[-1] if preact else stem)
        self.preact = preact

        blocks: list[Block] = []
        num_blocks = len(widths) * blocks_per_stage
        width_in = stem
        for stage, width in enumerate(widths):
            for first in [True] + [False] * (blocks_per_stage - 1):
                blocks.append(
                    block(
                        width_in,
                        width,
                        stride=2 if first and stage > 0 else 1,
                        projection=projection,
                        # the deeper a block the oftener it is skipped (Huang et al. 2016): 0 at the first
                        drop_path=drop_path * len(blocks) / max(1, num_blocks - 1),
                        dropout=dropout,
                        opens=not blocks,
                    )
                )
                width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(width_in, num_classes)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        maps = self.blocks(maps) if self.preact else self.blocks(F.relu(self.bn(maps)))
        maps = F.relu(self.bn(maps)) if self.preact else maps
        return cast(Tensor, self.fc(self.drop(maps.mean((2, 3)))))

    def zero_init_last(self) -> None:
        """Start every residual block as the identity (its shortcut, where it changes shape)."""
        for block in self.blocks:
            cast(Block, block).zero_init_last()

    def get_classifier(self) -> nn.Module:
        return self.fc


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut; what the two orders of norm and activation share."""

    def __init__(
        self,
        width_in: int,
        width: int,
        *,
        stride: int,
        projection: bool,
        drop_path: float,
        dropout: float,
        opens: bool,
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(width_in, width, stride)
        self.conv2 = conv3x3(width, width)
        self.dropout = nn.Dropout(dropout)
        self.drop_path = drop_path
        self.changes_shape = stride != 1 or width_in != width
        self.opens = opens
        self.shortcut: nn.Module = nn.Identity()
        if self.changes_shape:
            self.shortcut = (
                nn.Conv2d(width_in, width, 1, stride, bias=False) if projection else ZeroPad(width - width_in, stride)
            )

    def zero_init_last(self) -> None:
        raise NotImplementedError

    def skip_some(self, branch: Tensor) -> Tensor:
        """Stochastic depth: in training, leave the branch out for a share of the samples."""
        if not self.training or self.drop_path == 0:
            return branch
        kept = 1 - self.drop_path
        mask = torch.rand(len(branch), 1, 1, 1, dtype=branch.dtype, device=branch.device) < kept
        return branch * mask / max(kept, 1e-6)


class BasicBlock(Block):
    """conv, norm, relu, conv, norm, add, relu (He et al. 2015)."""
