"""Feature denoising (Xie et al. 2019, arXiv 1812.03411): blocks that average features over an image, after stages."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx.config.schema import DenoiseConfig
from phalanx.errors import UserError, nearest

_EMBEDDING_STD = 0.01


class Denoise(nn.Module):
    """x + norm(conv(mean of x)). The norm's scale starts at 0, so the block starts as the identity."""

    def __init__(self, channels: int, kind: str, *, embed: bool) -> None:
        super().__init__()
        self.kind = kind
        embeds = embed and kind != "mean"
        inner = max(1, channels // 2)
        self.query = nn.Conv2d(channels, inner, 1) if embeds else nn.Identity()
        self.key = nn.Conv2d(channels, inner, 1) if embeds else nn.Identity()
        self.conv, self.norm = nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
        for layer in (self.query, self.key):
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=_EMBEDDING_STD)
                nn.init.zeros_(cast(Tensor, layer.bias))
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.norm.weight)

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, maps + self.norm(self.conv(self._mean(maps))))

    def _mean(self, maps: Tensor) -> Tensor:
        if self.kind == "mean":
            return F.avg_pool2d(maps, 3, stride=1, padding=1, count_include_pad=False)
        query, key, value = (each.flatten(2).transpose(1, 2) for each in (self.query(maps), self.key(maps), maps))
        if self.kind == "softmax":
            mean = F.scaled_dot_product_attention(query, key, value)
        else:  # products are associative: the smaller of positions² and channels² is computed
            positions = value.shape[1]
            if positions < value.shape[2]:
                mean = torch.bmm(torch.bmm(query, key.transpose(1, 2)), value) / positions
            else:
                mean = torch.bmm(query, torch.bmm(key.transpose(1, 2), value)) / positions
        return mean.transpose(1, 2).reshape(maps.shape).contiguous(memory_format=_layout(maps))


def _layout(maps: Tensor) -> torch.memory_format:
    last = maps.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def add_denoising(model: nn.Module, config: DenoiseConfig, *, channels: int, image_size: int) -> None:
    """Append a block to each stage that the configuration names. Names of other parameters do not change."""
    if not config.after:
        return
    stages = {name: module for name, module in model.named_modules() if name and type(module) is nn.Sequential}
    for name in config.after:
        if name not in stages:
            raise UserError(
                f"model.denoise.after: the network has no stage called {name!r}",
                why="a block is appended to a sequence of blocks" if stages else "it has no sequences of blocks at all",
                remedy=nearest(name, list(stages)) if stages else "choose a ResNet, such as model.name=resnet18",
            )
    widths = _widths(model, [stages[name] for name in config.after], channels, image_size)
    for name, width in zip(config.after, widths, strict=True):
        if width is None:
            raise UserError(
                f"model.denoise.after: {name} does not give maps of features",
                why="a denoising block averages over the positions of (samples, channels, height, width)",
                remedy="name a stage of convolutions, such as layer1",
            )
        stages[name].append(Denoise(width, config.kind, embed=config.embed))


@torch.no_grad()
def _widths(model: nn.Module, stages: list[nn.Sequential], channels: int, image_size: int) -> list[int | None]:
    """Channels of each stage's output; None where it has no positions. A blank image in eval mode changes nothing."""
    found: dict[nn.Module, int | None] = {}

    def note(stage: nn.Module, _: object, output: object) -> None:
        found[stage] = output.shape[1] if isinstance(output, Tensor) and output.ndim == 4 else None

    hooks = [stage.register_forward_hook(note) for stage in stages]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        model(torch.zeros(1, channels, image_size, image_size, device=next(model.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return [found.get(stage) for stage in stages]
