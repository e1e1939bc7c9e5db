"""A step that was begun and not made leaves no trace; one that was made stays."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx.config.role import Role
from phalanx.config.schema import OptimConfig
from phalanx.engine.boundary import Boundary
from phalanx.engine.state import LossScale, TrainState
from phalanx.exchange.base import Exchange
from phalanx.exchange.collective.exchange import collective_exchange
from phalanx.exchange.collective.group import join_group
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.net.interfaces import free_port
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update

SCHEDULE = Schedule("constant", 0.1, 60, 0, "linear", 0.0, (), 0.1, 2.0, 0.0)


@pytest.fixture
def job() -> Iterator[tuple[nn.Module, Exchange]]:
    role = Role(master=f"127.0.0.1:{free_port('127.0.0.1')}")
    join_group(StoreRendezvous(role, 20), torch.device("cpu"), 20)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))
    update = Update(dict(model.named_parameters()), [], OptimConfig(), SCHEDULE)
    made = collective_exchange(model, update, role, accumulate=1, clip_norm=None, compression=parse_compression("2bit"))
    yield model, made
    made.close()


def backward(state: TrainState, exchange: Exchange) -> None:
    with exchange.gradients.accumulate(last=True):
        F.cross_entropy(exchange.gradients.forward(torch.randn(6, 1, 8, 8)), torch.arange(6) % 3).backward()
    assert state.loss_scale is not None
    state.loss_scale.scale /= 2


def everything(state: TrainState, exchange: Exchange) -> dict[str, Tensor]:
    assert exchange.recovery is not None
    rescued = exchange.recovery.rescue(state.step)
    groups = {"model": state.model.state_dict(), "optimizer": rescued.optimizer, "residuals": rescued.residuals}
    return {f"{group}/{name}": tensor.clone() for group, tensors in groups.items() for name, tensor in tensors.items()}


def test_only_a_step_that_was_not_made_is_undone(job: tuple[nn.Module, Exchange]) -> None:
    model, exchange = job
    assert exchange.recovery is not None
    state = TrainState(model, loss_scale=LossScale())
    boundary = Boundary(exchange.recovery)
    for _ in range(2):
        boundary.mark(state)
        backward(state, exchange)
        exchange.gradients.apply(state.step)
        state.step += 1
    made, scale = everything(state, exchange), replace(state.loss_scale or LossScale())
    assert any(name.startswith("residuals/0/") for name in made)

    boundary.restore(state)  # another worker is lost after this step's update: the mark before it is old
    assert all(torch.equal(tensor, made[name]) for name, tensor in everything(state, exchange).items())
    assert state.loss_scale == scale

    boundary.mark(state)
    backward(state, exchange)  # and lost while gradients were exchanged
    begun = everything(state, exchange)
    changed = {name.split("/")[0] for name in made if not torch.equal(begun[name], made[name])}
    assert changed == {"model", "residuals"}
    boundary.restore(state)
    undone = everything(state, exchange)
    assert undone.keys() == made.keys()
    assert all(torch.equal(tensor, made[name]) for name, tensor in undone.items())
    assert state.loss_scale == scale
    assert all(param.grad is None for param in state.model.parameters())
