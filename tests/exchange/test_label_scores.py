"""mAP over several workers is that of one, to the last bit. Real processes throughout."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from phalanx.config.role import Role
from phalanx.data.base import Batch, MicroBatch
from phalanx.data.order import Share
from phalanx.data.pipeline import evaluation_part
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.engine.label_scores import LabelScores
from phalanx.exchange.base import WorkerGroup
from phalanx.exchange.collective.group import CollectiveGroup
from phalanx.exchange.local import SingleWorker
from phalanx.net.interfaces import free_port
from tests.exchange.pserver.pserver_jobs import JobOfProcesses, Task, exchange_of, model
from tests.processes import preload, start

preload("phalanx.engine.label_scores", "torch._dynamo")
WORLD, BAD = 3, (7, 30)  # 61 samples do not divide; two of them do not decode


def validation() -> tuple[ArraySource, torch.Tensor]:
    generator = np.random.default_rng(0)
    labels = (generator.random((61, 6)) < 0.3).astype(np.int64)
    images = np.zeros((61, 2, 2, 1), dtype=np.uint8)
    source = array_source("s", "s", images, labels, list("abcdef"), image_size=2, channels=None)
    logits = np.round(generator.normal(size=(61, 6)) + labels, 1)  # with ties
    return source, torch.from_numpy(logits).float()


def measured(group: WorkerGroup) -> dict[str, float] | None:
    source, logits = validation()
    scores = LabelScores(source, group)
    mine = [index for index in evaluation_part(61, group.share).tolist() if index not in BAD]
    for low in range(0, len(mine), 8):
        chosen = torch.tensor(mine[low : low + 8])
        micro = MicroBatch(0, torch.zeros(len(chosen), 1, 2, 2, dtype=torch.uint8), chosen, chosen)
        scores.add(Batch(0, low, [micro], len(chosen), last=False), logits[chosen], group.share.rank)
    found = scores.results()
    return None if found is None else found.numbers()


def collective(rank: int, port: int, out: Path) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    group = CollectiveGroup(Share(rank, WORLD), torch.device("cpu"), None)
    (out / f"{rank}.json").write_text(json.dumps(measured(group)))
    dist.destroy_process_group()


def with_servers(role: Role, out: Path) -> None:
    exchange = exchange_of(Task(role, out), model())
    (out / f"{role.rank}.json").write_text(json.dumps(measured(exchange.group)))
    exchange.close()


@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_workers_gather_what_one_measures(method: str, tmp_path: Path) -> None:
    job = JobOfProcesses(tmp_path, 2, WORLD)
    try:
        if method == "pserver":
            job.start_servers()
            processes = [start(with_servers, job.role("trainer", rank), tmp_path) for rank in range(WORLD)]
        else:
            port = free_port("127.0.0.1")
            processes = [start(collective, rank, port, tmp_path) for rank in range(WORLD)]
        job.workers += processes
        job.join()
        assert [process.exitcode for process in processes] == [0] * WORLD
    finally:
        job.kill()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    assert found == [measured(SingleWorker(Share())), None, None]
