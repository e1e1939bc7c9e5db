"""sync: the result of local training, whatever the number of servers and workers and the way that bytes travel."""

import os
import signal
import socket

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from phalanx.config.role import Role
from phalanx.data.order import Share
from phalanx.errors import UserError
from phalanx.models.params import no_decay_names
from phalanx.optim.update import Update
from phalanx.roles.server import serve
from tests.exchange.pserver.pserver_jobs import (
    SCHEDULE,
    SGD,
    JobOfProcesses,
    Weights,
    local,
    model,
    optim,
    samples,
    work,
)
from tests.waiting import until

ADAMW = ("name=adamw", "lr=0.01", "weight_decay=0.1", "decay_norm_and_bias=false")


def assert_equal(weights: Weights, net: nn.Module) -> None:
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name]), name


@pytest.mark.parametrize("job", [(1, 1, "ipc"), (2, 1, "tcp"), (3, 1, "ipc")], indirect=True)
def test_one_worker_equals_local_training_bit_for_bit(job: JobOfProcesses) -> None:
    job.start_worker(0)
    net, exchange = local(50)
    job.join()
    assert_equal(job.weights(), net)
    tensors, scalars = exchange.state.optimizer_state()
    saved, told = job.state()
    assert saved.keys() == tensors.keys()
    assert all(torch.equal(saved[name], tensors[name]) for name in tensors)
    assert told == scalars
    steps = [line for line in job.lines("trainer-0") if "step" in line]
    assert all(line["inside_s"] > 0 for line in steps[1:])  # gradients leave during backward
    rates = [line["lr"] for line in steps]
    assert rates == [SCHEDULE(step) for step in range(50)]
    for server in range(job.num_servers):
        updates = [line for line in job.log(server) if line["kind"] == "update"]
        assert [(line["step"], line["rate"], line["gradients"]) for line in updates] == [
            (step, SCHEDULE(step), 1) for step in range(50)
        ]


@pytest.mark.parametrize("job", [(2, 1, "tcp")], indirect=True)
def test_without_shared_memory_and_with_every_push_sent_twice(job: JobOfProcesses) -> None:
    job.start_worker(0, remote=True, twice=True, optim=ADAMW)
    net, _ = local(50, ADAMW)
    job.join()
    assert_equal(job.weights(), net)
    assert not any(line["shared_memory"] for line in job.log(0) if line["kind"] == "join")
    assert sum(job.log(server)[-1]["duplicates"] for server in range(2)) > 50


@pytest.mark.parametrize("job", [(2, 2, "ipc"), (1, 2, "tcp")], indirect=True)
def test_two_workers_equal_local_training_with_two_micro_batches(job: JobOfProcesses) -> None:
    remote = job.transport == "tcp"
    for rank in range(2):
        job.start_worker(rank, twice=rank == 0, remote=remote)
    net, _ = local(50, accumulate=2)
    job.join()
    for name, parameter in net.named_parameters():
        mine = job.weights(0)[name]
        torch.testing.assert_close(mine, parameter.detach(), rtol=1e-5, atol=1e-6)
        assert torch.equal(mine, job.weights(1)[name])
    for name, value in job.weights(0).items():  # settled: statistics are averaged
        assert torch.equal(value, job.weights(1)[name]), name
    assert job.lines("trainer-0")[-1]["counted"] == [2.0, 1.0]
    updates = [line for line in job.log(0) if line["kind"] == "update"]
    assert [line["step"] for line in updates] == list(range(50))
    assert {line["gradients"] for line in updates} == {2}  # the twice-sent ones count once


@pytest.mark.parametrize("job", [(1, 2, "ipc")], indirect=True)
def test_a_lost_worker_ends_the_job_with_a_clear_message(job: JobOfProcesses) -> None:
    job.start_worker(0, steps=10_000)
    victim = job.start_worker(1, steps=10_000, pause_s=0.05)
    until(lambda: len(job.steps("trainer-1")) > 3)
    victim.kill()
    job.join(60)
    assert "worker 1 is gone: its process ended" in job.lines("trainer-0")[-1]["error"]
    assert "--resume" in job.lines("trainer-0")[-1]["error"]


@pytest.mark.parametrize("job", [(2, 1, "ipc")], indirect=True)
def test_a_dead_server_ends_the_job_with_a_clear_message(job: JobOfProcesses) -> None:
    job.start_worker(0, steps=10_000)
    until(lambda: len(job.steps("trainer-0")) > 3)
    job.servers[1].kill()
    job.workers[0].join(60)
    assert "parameter server 1 at ipc://" in job.lines("trainer-0")[-1]["error"]
    job.servers[0].join(60)
    assert job.servers[0].exitcode == 0  # its worker is gone, so it has nothing to do


@pytest.mark.parametrize("job", [(1, 1, "ipc")], indirect=True)
def test_a_silent_server_is_noticed_in_time(job: JobOfProcesses) -> None:
    job.start_worker(0, steps=10_000, timeout_s=1.5, remote=True)
    until(lambda: len(job.steps("trainer-0")) > 3)
    os.kill(job.servers[0].pid or 0, signal.SIGSTOP)
    job.workers[0].join(60)
    assert "has not answered for 1.5 s" in job.lines("trainer-0")[-1]["error"]


def test_addresses_that_cannot_be_used_are_explained() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        address = f"tcp://127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(UserError, match="cannot listen"):
            serve(Role("server", servers=(address,), key="k"))
    with pytest.raises(UserError, match="has no key"):
        serve(Role("server", servers=("tcp://0.0.0.0:7000",)))


def bf16_reference(steps: int) -> nn.Module:
    """Two workers that round what they send to bf16 and remember the rest, in plain words."""
    net = model()
    params = dict(net.named_parameters())
    update = Update(params, no_decay_names(net), optim(*SGD), SCHEDULE)
    images, labels = samples()
    rests = [{name: torch.zeros_like(param) for name, param in params.items()} for _ in range(2)]
    for step, each in work(Share(accumulate=2), 0, steps):
        total = {name: torch.zeros_like(param) for name, param in params.items()}
        for rest, (_, indices) in zip(rests, each.micro, strict=True):
            chosen = torch.from_numpy(indices)
            if len(chosen):
                loss = F.cross_entropy(net(images[chosen]), labels[chosen]) * (len(chosen) / each.total)
                for name, gradient in zip(params, torch.autograd.grad(loss, list(params.values())), strict=True):
                    rest[name] += gradient
                    sent = rest[name].bfloat16().float()
                    rest[name] -= sent
                    total[name] += sent
        for name, param in params.items():
            param.grad = total[name]
        update(step)
    return net


@pytest.mark.parametrize("job", [(2, 2, "ipc"), (1, 2, "tcp")], indirect=True)
def test_compressed_gradients_are_those_of_a_plain_reference(job: JobOfProcesses) -> None:
    for rank in range(2):
        job.start_worker(rank, compress="bf16", remote=job.transport == "tcp", steps=30)
    net = bf16_reference(30)
    job.join()
    for name, parameter in net.named_parameters():
        assert torch.equal(job.weights(0)[name], parameter.detach()), name
    sent = [line["bytes_sent"] for line in job.lines("trainer-0") if "bytes_sent" in line]
    owed = job.lines("trainer-0")[-1]["owed"]
    assert len(owed) == 2 * len(list(net.parameters()))
    assert owed["0/0.weight"] != owed["1/0.weight"] > 0  # each worker's own, for the checkpoint
    values = sum(parameter.numel() for parameter in net.parameters())
    assert 2 * values < sent[-1] < 2.6 * values
