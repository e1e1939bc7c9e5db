"""Frozen parameters: they keep their values, have no gradient and no optimizer state."""

from collections.abc import Sequence
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from phalanx.config.patterns import matches, refuse_unmatched
from phalanx.errors import UserError


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters that `patterns` select. A frozen batch norm also keeps its statistics, in eval mode."""
    if not patterns:
        return
    names = [name for name, _ in model.named_parameters()]
    refuse_unmatched("model.freeze", patterns, names)
    for name, parameter in model.named_parameters():
        if any(matches(pattern, name) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "model.freeze selects all parameters of the model",
            why="nothing would be left to train",
            remedy="leave the classifier out, such as model.freeze=[layer1, layer2]",
        )
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and any(matches(pattern, f"{name}.weight") for pattern in patterns):
            module.eval()
            module.__dict__["train"] = partial(_stay, module)


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    """`train` of a frozen batch norm. The loop sets the whole model to training mode; this module stays in eval."""
    return module
