"""The CIFAR networks that timm lacks: ResNets of depth 6n+2, pre-activation ResNets, and wide ResNets.

    cifar_resnetD   He et al. 2015 (arXiv:1512.03385), D = 6n+2, shortcuts without parameters ("option A")
    cifar_resnet18  the ImageNet ResNet-18 with a 3×3 stem and no max-pool, as people train it on CIFAR
    cifar_preactD   He et al. 2016 (arXiv:1603.05027), D = 6n+2, basic blocks
    wrnD_K          Zagoruyko & Komodakis 2016 (arXiv:1605.07146), D = 6n+4, K times wider

They take any number of channels and classes and any image size from 8 up; the classifier is called `fc`.
"""

import re
from typing import NamedTuple, cast

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
IMAGE_SIZE = 32  # the size they were designed for


class StagePlan(NamedTuple):
    """The architecture of a name: the kind of block, and their number and widths."""

    preact: bool  # norm and relu come before a convolution, not after it
    projection: bool  # a shortcut that changes shape is a 1×1 convolution, not zero padding
    stem_width: int
    stage_widths: tuple[int, ...]
    blocks_per_stage: int


def plan_of(name: str) -> StagePlan | None:
    """The architecture of a name; None if it is no name of these networks."""
    if name == "cifar_resnet18":
        return StagePlan(False, True, 64, (64, 128, 256, 512), 2)
    if match := re.fullmatch(r"cifar_(resnet|preact)(\d+)", name):
        blocks = _blocks_per_stage(name, depth=int(match[2]), layers_outside=2)
        return StagePlan(match[1] == "preact", False, 16, (16, 32, 64), blocks)
    if match := re.fullmatch(r"wrn(\d+)_([1-9]\d*)", name):
        blocks = _blocks_per_stage(name, depth=int(match[1]), layers_outside=4)
        widen = int(match[2])
        return StagePlan(True, True, 16, (16 * widen, 32 * widen, 64 * widen), blocks)
    return None


def _blocks_per_stage(name: str, *, depth: int, layers_outside: int) -> int:
    """n of depth = 6n + layers_outside: three stages of n blocks of two layers."""
    blocks, rest = divmod(depth - layers_outside, 6)
    if rest or blocks < 1:
        smallest = 6 + layers_outside
        below = max(smallest, depth - rest)
        also = ", and cifar_resnet18, which is built differently" if name.startswith("cifar_resnet") else ""
        raise UserError(
            f"model.name={name}: this network cannot have {depth} layers",
            why=f"valid depths are 6n+{layers_outside}: {', '.join(map(str, range(smallest, 60, 6)))} …{also}",
            remedy=" or ".join(name.replace(str(depth), str(valid), 1) for valid in (below, below + 6)),
        )
    return blocks


def build_cifar(
    plan: StagePlan,
    *,
    num_classes: int,
    channels: int,
    drop: float = 0.0,
    drop_path: float = 0.0,
    width: float = 1.0,
    dropout: float = 0.0,
) -> "CifarNet":
    """The network that a plan describes.

    `width` multiplies the channels of every layer; `dropout` is the rate between a block's two convolutions (as
    in the wide ResNets), `drop` the one before the classifier, `drop_path` the stochastic depth of the last block.
    """
    if not isinstance(width, int | float) or width <= 0:
        raise UserError(f"model.options.width={width!r} is not a number above 0")
    if not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise UserError(f"model.options.dropout={dropout!r} is not a number from 0 to 1")

    stem_width, *stage_widths = (max(1, round(w * width)) for w in (plan.stem_width, *plan.stage_widths))
    stem = nn.Sequential(conv3x3(channels, stem_width))
    tail = nn.Sequential()
    # pre-activation blocks normalise their own input, so the norm outside of the blocks comes last, not first
    outside, width_outside = (tail, stage_widths[-1]) if plan.preact else (stem, stem_width)
    outside.append(nn.BatchNorm2d(width_outside)).append(nn.ReLU(inplace=True))

    blocks: list[nn.Module] = []
    num_blocks = len(stage_widths) * plan.blocks_per_stage
    width_in = stem_width
    for stage, width_out in enumerate(stage_widths):
        for position in range(plan.blocks_per_stage):
            stride = 2 if stage > 0 and position == 0 else 1
            # deeper blocks are skipped more often (Huang et al. 2016), the first never
            skip = StochasticDepth(drop_path * len(blocks) / max(1, num_blocks - 1))
            shortcut = make_shortcut(width_in, width_out, stride, projection=plan.projection, norm=not plan.preact)
            if plan.preact:
                opens = not blocks or not isinstance(shortcut, nn.Identity)
                blocks.append(PreactBlock(width_in, width_out, stride, shortcut, dropout, skip, share=opens))
            else:
                blocks.append(BasicBlock(width_in, width_out, stride, shortcut, dropout, skip))
            width_in = width_out

    return CifarNet(stem, nn.Sequential(*blocks), tail, width_in, num_classes, drop)


class CifarNet(nn.Module):
    """Stem, residual blocks, mean over the image, classifier."""

    def __init__(
        self, stem: nn.Module, blocks: nn.Sequential, tail: nn.Module, width: int, num_classes: int, drop: float
    ) -> None:
        super().__init__()
        self.stem, self.blocks, self.tail = stem, blocks, tail
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps = self.tail(self.blocks(self.stem(images)))
        return cast(Tensor, self.fc(self.drop(maps.mean((2, 3)))))

    def zero_init_last(self) -> None:
        """Initialize the last layer of every block to 0, so that each block starts as its shortcut."""
        for block in self.blocks:
            assert isinstance(block, BasicBlock | PreactBlock)
            nn.init.zeros_(block.last.weight)


class BasicBlock(nn.Module):
    """conv, norm, relu, conv, norm; add; relu."""

    def __init__(
        self, width_in: int, width: int, stride: int, shortcut: nn.Module, dropout: float, skip: "StochasticDepth"
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(width_in, width, stride), nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv2, self.bn2 = conv3x3(width, width), nn.BatchNorm2d(width)
        self.shortcut, self.skip = shortcut, skip

    @property
    def last(self) -> nn.BatchNorm2d:
        return self.bn2

    def forward(self, maps: Tensor) -> Tensor:
        branch = F.relu(self.bn1(self.conv1(maps)), inplace=True)
        branch = self.bn2(self.conv2(self.dropout(branch)))
        # In place: batch norm does not need its output for backward, so a block keeps one activation less.
        return F.relu(self.skip(branch).add_(self.shortcut(maps)), inplace=True)


class PreactBlock(nn.Module):
    """norm, relu, conv, norm, relu, conv; add.

    With `share` the shortcut starts from the activated input, too: in the first block (its input is not activated)
    and where the shape changes. Elsewhere the shortcut is the identity.
    """

    def __init__(
        self,
        width_in: int,
        width: int,
        stride: int,
        shortcut: nn.Module,
        dropout: float,
        skip: "StochasticDepth",
        *,
        share: bool,
    ) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(width_in), conv3x3(width_in, width, stride)
        self.dropout = nn.Dropout(dropout)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv3x3(width, width)
        self.shortcut, self.skip, self.share = shortcut, skip, share

    @property
    def last(self) -> nn.Conv2d:
        # not bn2: with its gamma at 0 the relu after it passes no gradient, and the block would never learn
        return self.conv2

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.bn1(maps), inplace=True)
        branch = F.relu(self.bn2(self.conv1(active)), inplace=True)
        branch = self.conv2(self.dropout(branch))
        return cast(Tensor, self.shortcut(active if self.share else maps) + self.skip(branch))


class ZeroPadding(nn.Module):
    """A shortcut without parameters: strided, with channels of zeros appended."""

    def __init__(self, added_channels: int, stride: int) -> None:
        super().__init__()
        self.added_channels, self.stride = added_channels, stride

    def forward(self, maps: Tensor) -> Tensor:
        maps = maps[:, :, :: self.stride, :: self.stride]
        return F.pad(maps, (0, 0, 0, 0, 0, self.added_channels))


class StochasticDepth(nn.Module):
    """In training, drop a residual branch for a share of the samples, and scale the others up to match."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return branch
        kept = torch.rand(len(branch), 1, 1, 1, device=branch.device) >= self.rate
        return branch * kept.to(branch.dtype).div(1 - self.rate if self.rate < 1 else 1)


def conv3x3(width_in: int, width: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(width_in, width, kernel_size=3, stride=stride, padding=1, bias=False)


def make_shortcut(width_in: int, width: int, stride: int, *, projection: bool, norm: bool) -> nn.Module:
    """The shortcut of a block: the identity if shapes agree, else a projection or zero padding."""
    if stride == 1 and width_in == width:
        return nn.Identity()
    if not projection:
        return ZeroPadding(width - width_in, stride)
    convolution = nn.Conv2d(width_in, width, kernel_size=1, stride=stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width)) if norm else convolution
