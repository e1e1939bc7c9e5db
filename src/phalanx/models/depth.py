"""The depth of each parameter in a model, for rates that decay from the classifier to the first layer."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from phalanx.config.patterns import factor_of


def layer_depths(model: nn.Module) -> dict[str, int]:
    """From each parameter to its depth: 0 is nearest to the image, the classifier has the largest.

    timm's models say which parameters belong together (`group_matcher`). Elsewhere it is the order of the modules:
    each block of a stage is a depth of its own, and a norm belongs to what is before it.
    """
    matcher: Any = getattr(model, "group_matcher", None)
    if callable(matcher):
        from timm.models import group_parameters

        found = group_parameters(model, matcher(coarse=False), reverse=True)
        order = {group: depth for depth, group in enumerate(sorted(set(found.values())))}
        return {name: order[found[name]] for name, _ in model.named_parameters()}
    blocks: dict[str, bool] = {}  # in order: whether it has more than norms
    for name, parameter in model.named_parameters():
        block = _block(model, name)
        blocks[block] = blocks.get(block, False) or parameter.dim() > 1
    depth, depths = -1, {}
    for block, is_layer in blocks.items():
        depth = max(0, depth + is_layer)
        depths[block] = depth
    return {name: depths[_block(model, name)] for name, _ in model.named_parameters()}


def _block(model: nn.Module, name: str) -> str:
    """The block that a parameter is in: a child of the model, or of a list of blocks in it."""
    first, _, rest = name.partition(".")
    inside = getattr(model, first)
    while isinstance(inside, nn.Sequential | nn.ModuleList) and "." in rest:
        step, _, rest = rest.partition(".")
        first, inside = f"{first}.{step}", inside.get_submodule(step)
    return first


def decayed_rates(model: nn.Module, decay: float, rates: Mapping[str, float]) -> dict[str, float]:
    """The factor of the learning rate of each parameter: `decay` for each depth below the last, times `rates`."""
    depths = layer_depths(model)
    last = max(depths.values())
    return {name: decay ** (last - depth) * factor_of(name, rates) for name, depth in depths.items()}
