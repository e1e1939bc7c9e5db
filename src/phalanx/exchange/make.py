"""From the configuration to an update method: the only place that knows them all."""

import torch
from torch import nn

from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.exchange.local import LocalExchange
from phalanx.launch.role import Role
from phalanx.models.params import no_decay_names
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update


def make_exchange(
    config: RunConfig, model: nn.Module, schedule: Schedule, role: Role, device: torch.device
) -> Exchange:
    """The update method that the configuration names, ready to use."""
    method = config.exchange.method
    named = {name: param for name, param in model.named_parameters() if param.requires_grad}
    accumulate, clip_norm = config.optim.accumulate, config.optim.clip_norm
    if method == "local" and config.exchange.compress != "none":
        raise UserError(
            "one worker has nothing to compress",
            why=f"exchange.compress={config.exchange.compress} with exchange.method=local",
            remedy="leave it out, or choose --update-method collective or pserver",
        )
    update = Update(named, no_decay_names(model), config.optim, schedule)
    if method == "local":
        return LocalExchange(model, update, accumulate=accumulate, clip_norm=clip_norm)
    from phalanx.exchange.collective import CollectiveExchange, join_group
    from phalanx.exchange.compress.spec import parse_compression

    compression = parse_compression(config.exchange.compress)
    join_group(role, device, config.exchange.timeout_s)
    return CollectiveExchange(model, update, role, accumulate=accumulate, clip_norm=clip_norm, compression=compression)
