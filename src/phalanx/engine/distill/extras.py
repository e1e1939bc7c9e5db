"""Modules that are trained beside the model and thrown away after it: projections of features, a second student.

They hang below the model under a name of their own. So every update method, batch-norm averaging and the optimizer see
them as parameters of the model. Checkpoints keep them in a group of their own, and exports never have them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from phalanx.errors import UserError

NAME = "distill"
_PREFIX = f"{NAME}."


class Extras(nn.Module):
    """The base: `used` is whether the objective takes part in the forward pass that runs."""

    used = False


def attach(model: nn.Module, extras: Extras) -> None:
    """Hang extras below the model."""
    if isinstance(model, nn.Sequential) or hasattr(model, NAME):
        raise UserError(
            f"{type(model).__name__} cannot be trained with feature or mutual distillation",
            why=f"what is trained beside a model is kept in it as .{NAME}, and it runs or has such a layer itself",
            remedy=f"make it an nn.Module with a forward of its own and without .{NAME}",
        )
    model.add_module(NAME, extras)

    def touch(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """A worker without samples in a step still owes gradients of everything: those of 0 × the extras."""
        if extras.used or not torch.is_grad_enabled():
            return output
        return output + sum(parameter.sum() * 0.0 for parameter in extras.parameters())

    model.register_forward_hook(touch)


def extras_of(model: nn.Module) -> Extras | None:
    found = getattr(model, NAME, None)
    return found if isinstance(found, Extras) else None


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's state dict without extras."""
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if extras_of(model) is None or not _is_extra(name)}


def extra_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of the extras, by their names there; empty where there are none."""
    extras = extras_of(model)
    return {} if extras is None else extras.state_dict()


def with_extras(
    model: nn.Module, own: Mapping[str, Tensor], extras: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """A whole state dict from the model's own tensors and those of extras; by default those that it has now."""
    kept = extra_tensors(model) if extras is None else extras
    return {**own, **{f"{_PREFIX}{name}": tensor for name, tensor in kept.items()}}


def own_parameters(model: nn.Module) -> int:
    """How many numbers the model itself learns."""
    own = [value for name, value in model.named_parameters() if extras_of(model) is None or not _is_extra(name)]
    return sum(parameter.numel() for parameter in own)


def _is_extra(name: str) -> bool:
    return name.startswith(_PREFIX)
