"""An optimizer of the user's own: a torch.optim.Optimizer, made on trainers and on parameter servers alike."""

from typing import Any

import torch

from phalanx.config.schema import OptimConfig
from phalanx.custom import is_reference, load, user_code
from phalanx.custom.call import arguments, not_taken
from phalanx.errors import UserError


def make_own(groups: list[dict[str, Any]], config: OptimConfig, lr: float) -> torch.optim.Optimizer:
    """The optimizer that a reference names. It gets momentum, nesterov and weight_decay if its signature has them."""
    make = load(config.name)
    if not callable(make):
        raise _no_optimizer(config.name, make)
    with user_code():
        made = make(
            groups, **arguments(make, config.name, "optim.options", _offered(config), {"lr": lr, **config.options})
        )
    if not isinstance(made, torch.optim.Optimizer):
        raise _no_optimizer(config.name, made)
    return made


def _no_optimizer(name: str, found: object) -> UserError:
    return UserError(
        f"{name} is not an optimizer",
        why=f"it gave a {type(found).__name__}",
        remedy="name a class derived from torch.optim.Optimizer, or a function that returns one",
    )


def _offered(config: OptimConfig) -> dict[str, Any]:
    return {"momentum": config.momentum, "nesterov": config.nesterov, "weight_decay": config.weight_decay}


def optimizer_notes(config: OptimConfig) -> list[str]:
    """Settings that the user's optimizer does not take, so that nobody believes that they count."""
    if not is_reference(config.name):
        return []
    return not_taken(config.name, _offered(config))
