"""PP-LCNet (Cui et al. 2021, arXiv:2109.15099): depthwise-separable convolutions chosen for CPUs.

`PPLCNet_x1_0` is the network of the paper's table 1; the number behind the x is how many times as wide each layer is.
"""

from typing import cast

from torch import Tensor, nn

from phalanx.models.small import ImageNetwork

SCALES = ("0_25", "0_35", "0_5", "0_75", "1_0", "1_5", "2_0", "2_5")
LISTED = tuple(f"PPLCNet_x{scale}" for scale in SCALES)
STEM_WIDTH = 16
HEAD_WIDTH = 1280  # of the convolution before the classifier, at any scale
DROP = 0.2
REDUCTION = 4  # of squeeze and excitation
# kernel, width, stride, squeeze and excitation
BLOCKS = (
    (3, 32, 1, False),
    (3, 64, 2, False),
    (3, 64, 1, False),
    (3, 128, 2, False),
    (3, 128, 1, False),
    (3, 256, 2, False),
    *((5, 256, 1, False),) * 5,
    (5, 512, 2, True),
    (5, 512, 1, True),
)


def build_pplcnet(
    *, num_classes: int, channels: int, image_size: int, drop: float = DROP, scale: float
) -> ImageNetwork:
    """The network, each layer `scale` times as wide as PPLCNet_x1_0's."""
    width = _scaled(STEM_WIDTH, scale)
    layers: list[nn.Module] = [_conv_norm(channels, width, 3, stride=2)]
    for kernel, base, stride, excited in BLOCKS:
        width_out = _scaled(base, scale)
        layers.append(_conv_norm(width, width, kernel, stride=stride, groups=width))
        if excited:
            layers.append(SqueezeExcite(width))
        layers.append(_conv_norm(width, width_out, 1))
        width = width_out
    head = nn.Conv2d(width, HEAD_WIDTH, kernel_size=1, bias=False)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), head, nn.Hardswish(inplace=True), nn.Flatten())
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return ImageNetwork(network, HEAD_WIDTH, num_classes, drop)


def scale_of(name: str) -> float:
    """`PPLCNet_x0_25` → 0.25."""
    return float(name.rpartition("x")[2].replace("_", "."))


def _scaled(width: int, scale: float) -> int:
    """The nearest multiple of 8 that is at least 90 % of the exact width."""
    exact = width * scale
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * exact else rounded + 8


def _conv_norm(width_in: int, width: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(width_in, width, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.Hardswish(inplace=True))


class SqueezeExcite(nn.Module):
    """Squeeze and excitation (Hu et al. 2017): each map is scaled by a gate computed from the means of all maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, width // REDUCTION, kernel_size=1)
        self.expand = nn.Conv2d(width // REDUCTION, width, kernel_size=1)
        self.act, self.gate = nn.ReLU(inplace=True), nn.Hardsigmoid()

    def forward(self, maps: Tensor) -> Tensor:
        means = maps.mean((2, 3), keepdim=True)
        return maps * cast(Tensor, self.gate(self.expand(self.act(self.reduce(means)))))
