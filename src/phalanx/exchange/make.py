"""From the configuration to an update method: the only module that knows them all."""

import torch
from torch import nn

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.local import local_exchange
from phalanx.exchange.rendezvous import Rendezvous, StoreRendezvous
from phalanx.machine.settings import Settings
from phalanx.models.params import no_decay_names
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update


def make_exchange(
    config: RunConfig, model: nn.Module, schedule: Schedule, role: Role, settings: Settings, rendezvous: Rendezvous
) -> Exchange:
    """The update method that the configuration names, ready to use."""
    method, compress = config.exchange.method, parse_compression(config.exchange.compress)
    accumulate, micro_batches = config.optim.accumulate, config.train.micro_batches
    clip_norm = config.optim.clip_norm
    half = settings.dtype == torch.float16
    _refuse_misfits(config, settings, half)
    if method == "pserver":
        from phalanx.exchange.pserver.exchange import pserver_exchange
        from phalanx.exchange.pserver.gather import ServerRendezvous

        assert isinstance(rendezvous, ServerRendezvous)
        return pserver_exchange(
            model,
            no_decay_names(model),
            config.optim,
            schedule,
            config.exchange,
            role,
            micro_batches=micro_batches,
            overlap=not half,
            elastic=role.elastic,
            watch=rendezvous.watch,
        )
    named = {name: param for name, param in model.named_parameters() if param.requires_grad}
    update = Update(named, no_decay_names(model), config.optim, schedule)
    if method == "local":
        return local_exchange(model, update, accumulate=accumulate, micro_batches=micro_batches, clip_norm=clip_norm)
    from phalanx.exchange.collective.exchange import collective_exchange
    from phalanx.exchange.collective.group import join_group
    from phalanx.exchange.collective.sync_norm import synchronise

    assert isinstance(rendezvous, StoreRendezvous)
    peers = join_group(rendezvous, settings.device, config.exchange.timeout_s)
    if config.exchange.sync_bn:
        synchronise(model, settings.device, peers)
    return collective_exchange(
        model,
        update,
        role,
        accumulate=accumulate,
        micro_batches=micro_batches,
        clip_norm=clip_norm,
        compression=compress,
        sync_bn=config.exchange.sync_bn,
        peers=peers,
    )


def _refuse_misfits(config: RunConfig, settings: Settings, half: bool) -> None:
    """Refuse settings that cannot work together, with the reason."""
    exchange = config.exchange
    if exchange.method == "local" and exchange.compress != "none":
        raise UserError(
            "one worker has nothing to compress",
            why=f"exchange.compress={exchange.compress} with exchange.method=local",
            remedy="leave it out, or choose --update-method collective or pserver",
        )
    if exchange.method != "pserver" and exchange.compress_pull != "none":
        raise UserError(
            f"exchange.compress_pull={exchange.compress_pull} needs --update-method pserver",
            why="only there do workers pull parameters; an all-reduce is compressed both ways by --compress",
            remedy="leave it out, or choose --update-method pserver",
        )
    if half and exchange.compress != "none":
        raise UserError(
            "fp16 loss scaling and gradient compression do not go together",
            why="what compression holds back is in units of a loss scale that changes",
            remedy="machine.precision=bf16, or --compress none",
        )
    if exchange.sync_bn and (exchange.method != "collective" or settings.device.type not in ("cpu", "cuda")):
        raise UserError(
            "exchange.sync_bn needs --update-method collective, on CPUs or NVIDIA GPUs",
            why="workers add up each layer's statistics among themselves, in the middle of a step",
            remedy="leave it out: each worker then has its own statistics, averaged before validation",
        )
    if exchange.sync_bn and config.micro_batches % exchange.workers:
        raise UserError(
            f"{config.micro_batches} micro-batches over {exchange.workers} workers cannot be synchronised",
            why="with exchange.sync_bn all workers compute each micro-batch together",
            remedy="leave train.micro_batches out, or choose a multiple of the workers",
        )
