"""A worker of `bench comm`: update methods take turns in the same processes, under the same load of the machine."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from phalanx.config.role import Role
from phalanx.config.schema import AugmentConfig, ExchangeConfig, MachineConfig, ModelConfig, OptimConfig
from phalanx.data.base import Batch, MicroBatch
from phalanx.engine.inputs import Inputs
from phalanx.engine.loss import plain_loss
from phalanx.engine.objective import Supervised
from phalanx.engine.state import TrainState
from phalanx.engine.step import Engine, train_step
from phalanx.exchange.base import Exchange
from phalanx.exchange.collective.exchange import collective_exchange
from phalanx.exchange.collective.group import join_group, leave_group
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.local import local_exchange
from phalanx.exchange.pserver.exchange import pserver_exchange
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.launch.env.roles import role_from_env
from phalanx.machine.settings import choose
from phalanx.models.build import build_model
from phalanx.net import shared_memory as memory
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update
from phalanx.roles.lifeline import hold_lifeline

SCHEDULE = Schedule("constant", 0.01, 1000, 0, "linear", 0.0, (), 0.1, 2.0, 0.0)
TIMEOUT_S = 600.0
WARM_UP = 2  # rounds that fault memory in and let kernels choose


def main() -> None:
    """The main function of one process."""
    hold_lifeline()
    job, role = json.loads(sys.argv[1]), role_from_env(os.environ)
    assert role is not None
    if role.kind == "server":
        from phalanx.roles.server import serve

        serve(role)
        return
    if job["tcp"]:  # no shared memory: every byte is sent, as between machines
        memory.create = lambda size: memory.SharedMemory(torch.zeros(size, dtype=torch.uint8), None)
    settings = choose(MachineConfig(threads=job["threads"]), role.local_world)
    settings.apply()
    peers = join_group(StoreRendezvous(role, TIMEOUT_S), settings.device, TIMEOUT_S)
    result = _exchange(job, role, peers) if job["measure"] == "exchange" else _cost(job, role, peers)
    _tell({"result": result})


def _exchange(job: dict[str, Any], role: Role, peers: PeerWatch | None) -> dict[str, Any]:
    """Seconds of each round for all-reduce alone, for the update alone, and for a whole pserver step."""
    model = _model(job)
    params = list(model.parameters())
    gradients = [torch.randn_like(param) * 0.01 for param in params]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    update = Update(dict(model.named_parameters()), [], OptimConfig(), SCHEDULE)
    before = _resident_bytes()
    pserver = _pserver(model, role)
    seconds: dict[str, list[float]] = {"all-reduce": [], "local update": [], "pserver": []}
    for step in range(WARM_UP + job["rounds"]):
        _timed(seconds["all-reduce"], lambda: dist.all_reduce(flat))
        flat.mul_(1 / role.world)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        _timed(seconds["local update"], lambda step=step: update(step))  # type: ignore[misc]
        _timed(seconds["pserver"], lambda step=step: pserver.gradients.apply(step))  # type: ignore[misc]
        _done(role, step, job)
    # The local update's momentum is a copy that a real pserver trainer does not have.
    copies = (_resident_bytes() - before) / (4 * flat.numel()) - 1
    pserver.close()
    leave_group(peers)
    return {"seconds": {name: each[WARM_UP:] for name, each in seconds.items()}, "copies": copies}


def _cost(job: dict[str, Any], role: Role, peers: PeerWatch | None) -> dict[str, Any]:
    """Seconds of each turn of `steps` training steps: alone, collective, pserver."""
    settings = choose(MachineConfig(threads=job["threads"]), role.local_world)
    batch = _batch(job, role)
    inputs = Inputs(settings, AugmentConfig(), [0.5] * 3, [0.25] * 3, seed=0)
    engine = Engine(settings, inputs, Supervised(plain_loss), k=5, seed=0)
    plain = parse_compression("none")
    makers: dict[str, Callable[[nn.Module], Exchange]] = {
        "independent": lambda model: local_exchange(model, _update(model), accumulate=1, clip_norm=None),
        "collective": lambda model: collective_exchange(
            model, _update(model), role, accumulate=1, clip_norm=None, compression=plain, peers=peers
        ),
        "pserver sync": lambda model: _pserver(model, role),
    }
    teams = {}
    for name, make in makers.items():
        model = _model(job).to(memory_format=settings.memory_format)
        teams[name] = (TrainState(model), make(model))
    seconds: dict[str, list[float]] = {name: [] for name in teams}
    for turn in range(1 + job["rounds"]):
        for name, (state, exchange) in teams.items():

            def steps(state: TrainState = state, exchange: Exchange = exchange) -> None:
                for _ in range(job["steps"]):
                    train_step(state, batch, exchange, engine)
                    state.step += 1

            _timed(seconds[name], steps)
        _done(role, turn, job)
    for _, exchange in teams.values():
        exchange.state.sync_buffers()
        exchange.close()
    return {"seconds": {name: each[1:] for name, each in seconds.items()}}


def _model(job: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelConfig(name=job["model"]), num_classes=1000, channels=3, image_size=job["size"])


def _update(model: nn.Module) -> Update:
    return Update(dict(model.named_parameters()), [], OptimConfig(), SCHEDULE)


def _pserver(model: nn.Module, role: Role) -> Exchange:
    settings = ExchangeConfig(method="pserver", workers=role.world, timeout_s=TIMEOUT_S)
    return pserver_exchange(model, [], OptimConfig(), SCHEDULE, settings, role)


def _batch(job: dict[str, Any], role: Role) -> Batch:
    torch.manual_seed(role.rank)
    count, size = job["batch_size"], job["size"]
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8).to(memory_format=torch.channels_last)
    micro = MicroBatch(0, images, torch.randint(0, 1000, (count,)), torch.arange(count))
    return Batch(0, 0, [micro], count * role.world, last=False)


def _timed(seconds: list[float], action: Callable[[], object]) -> None:
    """From the moment when all workers are ready until this one has done its part."""
    dist.barrier()
    begin = time.perf_counter()
    action()
    seconds.append(time.perf_counter() - begin)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _done(role: Role, turn: int, job: dict[str, Any]) -> None:
    if role.rank == 0:
        _tell({"done": (turn + 1) / (WARM_UP + job["rounds"])})


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
