"""Real processes: an error of the user's model stays what it is, whatever it says; a lost worker is named."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phalanx.config.role import Role
from phalanx.config.schema import OptimConfig
from phalanx.exchange.base import Exchange
from phalanx.exchange.collective.exchange import collective_exchange
from phalanx.exchange.collective.group import join_group
from phalanx.exchange.collective.sync_norm import synchronise
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.net.interfaces import free_port
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update
from tests.processes import preload, start

SCHEDULE = Schedule("constant", 0.1, 60, 0, "linear", 0.0, (), 0.1, 2.0, 0.0)
WORDS = "gloo socket: connection closed by peer, timed out"  # what a user's model might say
FAILS_AT = 3  # steps: DDP has its final buckets by then, and powersgd compresses

preload("torch._dynamo", "phalanx.exchange.collective.exchange", "phalanx.exchange.collective.sync_norm")


class FailingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        return images.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError(WORDS)


class UserModel(nn.Module):
    """Fails in forward or in backward, as `fails` says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 4, 3)
        self.rest = nn.Sequential(nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))
        self.fails = ""

    def forward(self, images: Tensor) -> Tensor:
        if self.fails == "forward":
            raise RuntimeError(WORDS)
        features = self.first(images)
        if self.fails == "backward":
            features = FailingBackward.apply(features)
        output: Tensor = self.rest(features)
        return output


def step(exchange: Exchange, number: int) -> None:
    with exchange.gradients.accumulate(last=True):
        exchange.gradients.forward(torch.randn(6, 1, 8, 8)).square().sum().backward()
    exchange.group.sync_step(False, [1.0])
    exchange.gradients.apply(number)


def train(rank: int, port: int, out: Path, what: str, compress: str) -> None:
    """Train until something fails; leave the error's type and text in `out`."""
    torch.set_num_threads(1)
    role = Role(rank=rank, world=2, local_rank=rank, local_world=2, master=f"127.0.0.1:{port}")
    peers = join_group(StoreRendezvous(role, 60, 6), torch.device("cpu"), 60)
    model = UserModel()
    if what == "batch norm":
        synchronise(model, torch.device("cpu"), peers)
    update = Update(dict(model.named_parameters()), [], OptimConfig(), SCHEDULE)
    exchange = collective_exchange(
        model, update, role, accumulate=1, clip_norm=None, compression=parse_compression(compress), peers=peers
    )
    try:
        for number in range(FAILS_AT):
            step(exchange, number)
        if rank == 1 and what in ("forward", "backward"):
            model.fails = what
        elif rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "sum":
            exchange.group.sum([1.0])
        step(exchange, FAILS_AT)
    except Exception as error:
        (out / f"{rank}.json").write_text(json.dumps([type(error).__name__, str(error), str(error.__cause__)]))


def errors(out: Path, what: str, compress: str = "none") -> dict[int, list[str]]:
    port = free_port("127.0.0.1")
    processes = [start(train, rank, port, out, what, compress) for rank in range(2)]
    for process in processes:
        process.join(60)
        assert process.exitcode is not None, "a worker does not end"
    return {int(path.stem): json.loads(path.read_text()) for path in out.iterdir()}


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_error_of_the_users_model_stays_what_it_is(tmp_path: Path, where: str) -> None:
    found = errors(tmp_path, where)
    assert found[1][:2] == ["RuntimeError", WORDS]
    assert found[0][0] == "LostWorker"
    assert found[0][1].startswith("trainer-1 on ")
    assert WORDS not in found[0][1]


@pytest.mark.parametrize(
    ("what", "compress"),
    [
        ("gradients", "none"),
        ("gradients", "2bit"),
        ("gradients", "powersgd:1"),
        ("sum", "none"),
        ("batch norm", "none"),
    ],
)
def test_a_lost_worker_is_named_wherever_it_is_missed(tmp_path: Path, what: str, compress: str) -> None:
    found = errors(tmp_path, what, compress)
    assert list(found) == [0]  # the other one was killed
    assert found[0][0] == "LostWorker"
    assert found[0][1].startswith("trainer-1 on ")
    assert "is gone or silent" in found[0][1]
