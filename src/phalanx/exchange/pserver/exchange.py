"""The update method of a job with parameter servers, put together from its parts."""

from collections.abc import Iterable

from torch import nn

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig, OptimConfig
from phalanx.data.order import Share
from phalanx.errors import UserError
from phalanx.exchange.base import Exchange
from phalanx.exchange.liveness import LivenessWatch, watch_servers
from phalanx.exchange.pserver.compressor import Compressor, wire_bytes
from phalanx.exchange.pserver.gradients import PserverGradients
from phalanx.exchange.pserver.group import AsyncPserverGroup, PserverGroup, StepNumber
from phalanx.exchange.pserver.job import ServerJob, describe
from phalanx.exchange.pserver.parameters import ServerParameters
from phalanx.exchange.pserver.rejoin import PserverRejoin
from phalanx.exchange.pserver.servers import Servers
from phalanx.exchange.pserver.slices import refuse_global
from phalanx.exchange.pserver.worker_state import PserverRecovery, PserverResiduals, PserverState
from phalanx.optim.schedule import Schedule


def pserver_exchange(
    model: nn.Module,
    no_decay: Iterable[str],
    optim: OptimConfig,
    schedule: Schedule,
    exchange: ExchangeConfig,
    role: Role,
    *,
    micro_batches: int | None = None,
    overlap: bool = True,
    elastic: bool = False,
    watch: LivenessWatch | None = None,
) -> Exchange:
    """Join the job's parameter servers as one of its workers.

    `overlap` sends gradients during backward. It must be off where they are changed afterwards (fp16 loss scaling).
    `elastic` has servers keep each slice as it was before its last update, for the survivors of a lost worker.
    `watch` is over the servers; by default it is made here.
    """
    refuse_global(optim)
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    job = describe(params, no_decay, optim, schedule, exchange, role, elastic=elastic)
    lockstep = job.mode == "sync"
    watch = watch or watch_servers(role, exchange)
    servers = Servers(role, exchange.timeout_s, watch, exchange.encrypt, patient=not lockstep)
    welcomes = servers.join(job)
    rejoined = any(welcome["rejoined"] for welcome in welcomes)
    parameters = ServerParameters(
        *(params, job, servers, role.rank),
        still=lockstep,
        filled=all(welcome["filled"] for welcome in welcomes),
    )
    step = StepNumber()
    share = Share(role.rank, role.world, optim.accumulate, micro_batches)
    group = (PserverGroup if lockstep else AsyncPserverGroup)(share, servers, step)
    compressor = _compressor(job)
    residuals = PserverResiduals(compressor, parameters, group) if compressor is not None else None
    gradients = PserverGradients(model, parameters, step, compressor, overlap=overlap)
    made = Exchange(
        gradients,
        group,
        PserverState(model, parameters, group, joined=rejoined),
        residuals=residuals,
        sends_in_backward=overlap,
        recovery=PserverRecovery(parameters, residuals) if lockstep else None,
        joined_step=welcomes[0]["step"] if rejoined else None,  # the first server adds up numbers, so its step counts
        rejoin=None if lockstep else PserverRejoin(parameters, gradients),
        stopping=lambda: servers.stopping,
        leave_unfinished=servers.leave_unfinished,
    )
    for close in (watch.close, servers.close, gradients.close):  # the last one is called first
        made.connections.callback(close)
    return made


def _compressor(job: ServerJob) -> Compressor | None:
    codec = job.codec()
    if codec is None:
        return None
    for each in job.slices:
        if wire_bytes(codec, each) > each.bytes:
            raise UserError(
                f"compression {job.compress} makes gradients larger",
                why=f"{each.bytes} bytes would become {wire_bytes(codec, each)}: an index costs as much as a value",
                remedy="send a smaller share, such as topk:0.01, or --compress none",
            )
    return Compressor(job)
