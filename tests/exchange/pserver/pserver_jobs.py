"""Real servers and workers for tests, forked from a process that has imported torch once."""

import ctypes
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal, TextIO

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig, OptimConfig
from phalanx.data.order import Share, Work, epoch_work
from phalanx.errors import UserError
from phalanx.exchange.base import Applied, AsyncWorkerGroup, Exchange, GivenUp
from phalanx.exchange.local import local_exchange
from phalanx.exchange.pserver.exchange import pserver_exchange
from phalanx.exchange.pserver.link import Link
from phalanx.exchange.pserver.slices import Slice
from phalanx.exchange.pserver.wire import Header, MessageKind
from phalanx.models.params import no_decay_names
from phalanx.net import shared_memory as memory
from phalanx.net.interfaces import free_port
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update
from phalanx.roles.server import serve
from tests.processes import preload, start

SAMPLES, BATCH = 61, 12  # no batch size divides it, and no number of workers
SGD = ("weight_decay=0.01", "decay_norm_and_bias=false", "momentum=0.9")
SCHEDULE = Schedule("cosine", 0.1, 60, 7, "linear", 0.0, (), 0.1, 2.0, 0.0)
KEY = "the job's secret"

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What a worker of a test does."""

    role: Role
    out: Path
    steps: int = 50
    mode: str = "sync"
    optim: tuple[str, ...] = SGD
    accumulate: int = 1
    timeout_s: float = 20.0
    silence_s: float = 30.0
    hold_s: float = 0.0  # per step, in native code that lets nothing of Python run
    damping: bool = False
    twice: bool = False  # send every push two times
    compress: str = "none"
    compress_pull: Literal["none", "fp16", "bf16"] = "none"
    pause_s: float = 0.0  # per step
    remote: bool = False  # as on another machine: no shared memory
    load: tuple[Path, Path, dict[str, Any]] | None = None  # weights, state and its scalars to start from
    start: int = 0
    settles_at: int | None = None  # a step before which it meets the others, as for a checkpoint
    leaves: bool = False  # after its steps, as when it is told to stop


def model() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 24, 3, stride=2), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)),
    )
    return net.to(memory_format=torch.channels_last)


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(SAMPLES, 3, 12, 12, generator=generator).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(10, (SAMPLES,), generator=generator)


def optim(*settings: str) -> OptimConfig:
    return resolve([parse_override(f"optim.{setting}") for setting in settings]).config.optim


def work(share: Share, start: int, steps: int) -> Iterator[tuple[int, Work]]:
    step = 0
    for epoch in range(10_000):
        for each in epoch_work(0, epoch, SAMPLES, BATCH, False, share):
            if step >= steps:
                return
            if step >= start:
                yield step, each
            step += 1


def train_step(exchange: Exchange, each: Work, step: int, images: Tensor, labels: Tensor) -> Applied:
    """What engine.step does, without its engine."""
    filled = [indices for _, indices in each.micro if len(indices)]
    for indices in filled:
        chosen = torch.from_numpy(indices)
        with exchange.gradients.accumulate(last=indices is filled[-1]):
            loss = F.cross_entropy(exchange.gradients.forward(images[chosen]), labels[chosen])
            (loss * (len(chosen) / each.total)).backward()
    if not filled:
        exchange.gradients.skip_step(images[:0])
    return exchange.gradients.apply(step)


def local(steps: int, settings: tuple[str, ...] = SGD, accumulate: int = 1) -> tuple[nn.Module, Exchange]:
    """The same training in one process."""
    torch.set_num_threads(1)
    net, config = model(), optim(*settings)
    update = Update(dict(net.named_parameters()), no_decay_names(net), config, SCHEDULE)
    exchange = local_exchange(net, update, accumulate=accumulate, clip_norm=None)
    data = samples()
    for step, each in work(exchange.group.share, 0, steps):
        train_step(exchange, each, step, *data)
    return net, exchange


def exchange_of(task: Task, net: nn.Module) -> Exchange:
    config = ExchangeConfig(
        method="pserver",
        workers=task.role.world,
        mode=task.mode,
        damping=task.damping,
        timeout_s=task.timeout_s,
        silence_s=task.silence_s,
        compress=task.compress,
        compress_pull=task.compress_pull,
    )
    settings = optim(*task.optim, f"accumulate={task.accumulate}")
    return pserver_exchange(net, no_decay_names(net), settings, SCHEDULE, config, task.role)


def worker(task: Task) -> None:
    """The main of a worker process: trains, says each step on disk, leaves weights and state."""
    torch.set_num_threads(1)
    if task.twice:
        _send_twice()
    if task.remote:
        memory.create = lambda size: memory.SharedMemory(torch.zeros(size, dtype=torch.uint8), None)
    net = model()
    told = task.out.with_suffix(".jsonl").open("a", buffering=1)
    try:
        exchange = exchange_of(task, net)
        if task.load is not None:
            net.load_state_dict(load_file(task.load[0]))
            exchange.state.load(load_file(task.load[1]), task.load[2])
        start = exchange.joined_step or task.start
        told.write(json.dumps({"joined": exchange.joined_step, "pid": os.getpid()}) + "\n")
        _train(task, exchange, start, told)
        if task.leaves:
            assert isinstance(exchange.group, AsyncWorkerGroup)
            exchange.group.leave()
        exchange.state.sync_buffers()
        tensors, scalars = exchange.state.optimizer_state()
        residuals = exchange.residuals.residuals() if exchange.residuals is not None else {}
        owed = {name: float(value.abs().sum()) for name, value in residuals.items()}
        counted = exchange.group.sum([1.0, float(task.role.rank)])
        exchange.close()
    except UserError as error:
        told.write(json.dumps({"error": str(error)}) + "\n")
        raise
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, task.out.with_suffix(".weights"))
    save_file({k: v.contiguous() for k, v in tensors.items()}, task.out.with_suffix(".state"))
    told.write(json.dumps({"done": True, "scalars": scalars, "counted": counted, "owed": owed}) + "\n")


def _train(task: Task, exchange: Exchange, start: int, told: TextIO) -> None:
    """What engine.loop does, without its engine."""
    data, trained = samples(), False
    while not trained:
        try:
            for step, each in work(exchange.group.share, start, task.steps):
                if step == task.settles_at:
                    exchange.state.sync_buffers()
                applied = train_step(exchange, each, step, *data)
                line = {
                    "step": step,
                    "lr": applied.lr,
                    "bytes_sent": applied.bytes_sent,
                    "bytes_received": applied.bytes_received,
                }
                told.write(json.dumps(line | {"inside_s": applied.inside_backward_s, **applied.details}) + "\n")
                time.sleep(task.pause_s)
                ctypes.PyDLL(None).usleep(int(1e6 * task.hold_s))
            trained = True
        except GivenUp as given_up:
            if exchange.rejoin is None:
                raise
            back = exchange.rejoin(given_up)
            start = back.step
            told.write(json.dumps({"rejoined": back.step, "text": back.text}) + "\n")


def _send_twice() -> None:
    once = Link.send_slice

    def send_slice(self: Link, header: Header, slice_: Slice) -> None:
        once(self, header, slice_)
        if header.kind is MessageKind.PUSH:
            once(self, header, slice_)

    Link.send_slice = send_slice  # type: ignore[method-assign]


preload("torch._dynamo", "phalanx.exchange.pserver.exchange", "phalanx.roles.server", "safetensors.torch")


@dataclass
class JobOfProcesses:
    """Servers and workers on this machine, ended when the test ends."""

    folder: Path
    num_servers: int
    world: int
    transport: str = "ipc"
    silence_s: float = 30.0
    servers: list[ForkServerProcess] = field(default_factory=list)
    workers: list[ForkServerProcess] = field(default_factory=list)

    def role(self, kind: Any, rank: int) -> Role:
        world = self.world if kind == "trainer" else self.num_servers
        return Role(kind, rank, world, rank, world, servers=self.addresses, key=KEY, run=self.folder)

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        if self.transport == "ipc":
            return tuple(f"ipc://{self.folder}/server-{number}" for number in range(self.num_servers))
        return tuple(f"tcp://127.0.0.1:{free_port('127.0.0.1')}" for _ in range(self.num_servers))

    def start_servers(self) -> None:
        for rank in range(self.num_servers):
            self.servers.append(start(serve, self.role("server", rank), ExchangeConfig(silence_s=self.silence_s)))

    def start_worker(self, rank: int, name: str | None = None, **settings: Any) -> ForkServerProcess:
        settings = {"silence_s": self.silence_s, **settings}
        task = Task(self.role("trainer", rank), self.folder / (name or f"trainer-{rank}"), **settings)
        self.workers.append(start(worker, task))
        return self.workers[-1]

    def join(self, timeout_s: float = 30.0) -> None:
        """Wait for all to end by themselves."""
        deadline = time.monotonic() + timeout_s
        for process in [*self.workers, *self.servers]:
            process.join(max(0.1, deadline - time.monotonic()))
            assert process.exitcode is not None, "a process does not end"

    def kill(self) -> None:
        for process in [*self.workers, *self.servers]:
            if process.is_alive():
                process.kill()
                process.join()

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def steps(self, name: str) -> list[int]:
        return [line["step"] for line in self.lines(name) if "step" in line]

    def weights(self, rank: int = 0) -> Weights:
        return load_file(self.folder / f"trainer-{rank}.weights")

    def state(self, rank: int = 0) -> tuple[Weights, dict[str, Any]]:
        scalars = self.lines(f"trainer-{rank}")[-1]["scalars"]
        return load_file(self.folder / f"trainer-{rank}.state"), scalars

    def log(self, server: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "logs" / f"server-{server}.jsonl").read_text().splitlines()]
