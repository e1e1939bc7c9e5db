"""After the loss of a worker in sync mode, survivors can have the last step that is whole, wherever slices stand."""

from threading import Thread

import pytest
import torch
from torch import nn

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import Exchange, LostWorker
from phalanx.exchange.pserver.exchange import pserver_exchange
from phalanx.exchange.pserver.link import Link
from phalanx.exchange.pserver.slices import Slice
from phalanx.exchange.pserver.wire import Header
from phalanx.exchange.pserver.worker_state import PserverResiduals
from phalanx.models.params import no_decay_names
from tests.exchange.pserver.pserver_jobs import (
    SCHEDULE,
    SGD,
    JobOfProcesses,
    local,
    model,
    optim,
    samples,
    train_step,
    work,
)
from tests.processes import start
from tests.waiting import until

STEPS = 3  # that are whole before a worker dies


def exchange_of(role: Role, compress: str) -> tuple[nn.Module, Exchange]:
    config = ExchangeConfig(method="pserver", workers=2, timeout_s=20, compress=compress)
    net = model()
    return net, pserver_exchange(net, no_decay_names(net), optim(*SGD), SCHEDULE, config, role, elastic=True)


def push_only_half(told: tuple[Role, str]) -> None:
    """The main of a worker whose last gradients reach the first server only; then it waits to be killed."""
    torch.set_num_threads(1)
    (_, exchange), data = exchange_of(*told), samples()
    send = Link.send_slice

    def send_to_first(self: Link, header: Header, slice_: Slice) -> None:
        if self.number == 0 or header.step < STEPS:
            send(self, header, slice_)

    Link.send_slice = send_to_first  # type: ignore[method-assign]
    for step, each in work(exchange.group.share, 0, STEPS + 1):
        train_step(exchange, each, step, *data)


def updates(job: JobOfProcesses, server: int) -> list[int]:
    return [line["step"] for line in job.log(server) if line["kind"] == "update"]


@pytest.mark.parametrize("compress", ["none", "bf16"])
@pytest.mark.parametrize("job", [(2, 2, "ipc")], indirect=True)
def test_slices_that_are_a_step_apart_are_rescued_as_one(job: JobOfProcesses, compress: str) -> None:
    victim = start(push_only_half, (job.role("trainer", 1), compress))
    job.workers.append(victim)
    (net, exchange), data = exchange_of(job.role("trainer", 0), compress), samples()

    def kill_when_half_is_updated() -> None:
        until(lambda: STEPS in updates(job, 0))
        victim.kill()

    killer = Thread(target=kill_when_half_is_updated)
    steps = list(work(exchange.group.share, 0, STEPS + 1))
    for step, each in steps[:STEPS]:
        train_step(exchange, each, step, *data)
    recovery = exchange.recovery
    assert recovery is not None
    residuals = exchange.residuals
    assert residuals is None or isinstance(residuals, PserverResiduals)
    owed = {name: tensor.clone() for name, tensor in residuals.own().items()} if residuals is not None else {}
    recovery.mark()
    killer.start()
    with pytest.raises(LostWorker, match="worker 1 is gone: its process ended"):
        train_step(exchange, steps[STEPS][1], STEPS, *data)
    killer.join()
    assert (updates(job, 0)[-1], updates(job, 1)[-1]) == (STEPS, STEPS - 1)

    recovery.roll_back()
    rescued = recovery.rescue(STEPS)
    assert (compress == "none") == (rescued.residuals == {})
    assert rescued.residuals.keys() == owed.keys()
    assert all(torch.equal(tensor, owed[name]) for name, tensor in rescued.residuals.items())
    if compress == "none":
        plain, alone = local(STEPS, accumulate=2)
        tensors, scalars = alone.state.optimizer_state()
        assert rescued.scalars == scalars
        assert rescued.optimizer.keys() == tensors.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(rescued.optimizer[name], tensor, rtol=1e-5, atol=1e-6)
        for name, param in plain.named_parameters():
            mine = net.get_parameter(name)
            torch.testing.assert_close(mine, param, rtol=1e-5, atol=1e-6)
    with pytest.raises(LostWorker, match="does not have slice"):
        recovery.rescue(STEPS + 1)  # the second server never made it
    exchange.close()
    job.join()  # servers end when nobody is left
