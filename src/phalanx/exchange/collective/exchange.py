"""The update method of a collective job, put together from its parts."""

from torch import nn

from phalanx.config.role import Role
from phalanx.data.order import Share
from phalanx.exchange.base import Exchange
from phalanx.exchange.collective.gradients import CollectiveGradients
from phalanx.exchange.collective.group import CollectiveGroup, leave_group
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.exchange.collective.state import CollectiveRecovery, CollectiveResiduals
from phalanx.exchange.compress.spec import CompressionSpec
from phalanx.exchange.local import LocalState
from phalanx.optim.update import Update


def collective_exchange(
    model: nn.Module,
    update: Update,
    role: Role,
    *,
    accumulate: int,
    clip_norm: float | None,
    compression: CompressionSpec,
    micro_batches: int | None = None,
    sync_bn: bool = False,
    peers: PeerWatch | None = None,
) -> Exchange:
    """The update method of one of several workers, which have joined a process group; `peers` watches the others."""
    share = Share(role.rank, role.world, accumulate, micro_batches)
    group = CollectiveGroup(share, next(model.parameters()).device, peers)
    gradients = CollectiveGradients(model, update, clip_norm, compression, peers)
    exchange = Exchange(
        gradients,
        group,
        LocalState(model, update, group),
        residuals=CollectiveResiduals(gradients.hook, group) if compression.kind != "none" else None,
        recovery=CollectiveRecovery(update, gradients.hook, role.rank),
        sync_bn=sync_bn,
    )
    exchange.connections.callback(leave_group, peers)
    return exchange
