"""A checkpoint does not know which mode wrote it, nor how many servers there were."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from phalanx.exchange.local import local_exchange
from phalanx.models.params import no_decay_names
from phalanx.optim.update import Update
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

ADAMW = ("name=adamw", "lr=0.01", "weight_decay=0.1", "decay_norm_and_bias=false")


@pytest.mark.parametrize("settings", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_three_servers_then_local_then_two_servers_equals_uninterrupted(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    first = JobOfProcesses(tmp_path / "first", 3, 1)
    second = JobOfProcesses(tmp_path / "second", 2, 1)
    try:
        first.folder.mkdir()
        first.start_servers()
        first.start_worker(0, optim=settings, steps=10)
        whole, _ = local(30, settings)
        first.join()

        net = model()
        net.load_state_dict(first.weights())
        update = Update(dict(net.named_parameters()), no_decay_names(net), optim(*settings), SCHEDULE)
        exchange = local_exchange(net, update, accumulate=1, clip_norm=None)
        exchange.state.load(*first.state())
        data = samples()
        for step, each in work(exchange.group.share, 10, 20):
            train_step(exchange, each, step, *data)

        second.folder.mkdir()
        weights, state = second.folder / "weights", second.folder / "state"
        tensors, scalars = exchange.state.optimizer_state()
        save_file({key: value.contiguous() for key, value in net.state_dict().items()}, weights)
        save_file({key: value.contiguous() for key, value in tensors.items()}, state)
        second.start_servers()
        second.start_worker(0, optim=settings, start=20, steps=30, load=(weights, state, scalars))
        second.join()
    finally:
        first.kill()
        second.kill()
    for name, value in whole.state_dict().items():
        assert torch.equal(value, load_file(second.folder / "trainer-0.weights")[name]), name
