"""Real data servers for tests, forked from a process that has imported torch once, and the data that they serve."""

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch, MicroBatch
from phalanx.data.order import Share, Work
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.body import Bad
from phalanx.data.service.client import Service
from phalanx.data.service.lease_scheduler import Patience
from phalanx.data.service.serve import serve
from phalanx.data.service.terms import terms_of
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from tests.processes import preload, start
from tests.waiting import until

KEY = "the servers' secret"
BATCH = 7  # divides no number of samples here
# Nothing is left out that could depend on who makes a batch: cropping, flipping, colours, policies.
SETTINGS = (
    *("data.image_size=24", "augment.crop=random-resized", "augment.flip=0.5", "augment.brightness=0.3"),
    *("augment.policy=randaugment", "augment.rotate=20", "train.seed=3", "data.val_share=0.2"),
)


def write_photographs(folder: Path, count: int = 40) -> Path:
    """JPEG files of different sizes in two classes."""
    noise = np.random.default_rng(0)
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for number in range(count):
            pixels = noise.integers(0, 256, (20 + number % 9, 28 + number % 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.jpg", quality=90)
    return folder


def configured(data: Path, *settings: str) -> RunConfig:
    return resolve(list(map(parse_override, (f"data.source={data}", *SETTINGS, *settings)))).config


def pipeline_of(
    config: RunConfig, batch: int = BATCH, share: Share | None = None, threads: int = 1, remote: Service | None = None
) -> Pipeline:
    source = open_data(config.data, threads=threads).train
    return training_pipeline(config, source, batch=batch, threads=threads, share=share, remote=remote)


def taken(
    pipeline: Pipeline, count: int, after: Callable[[], object] = lambda: None, epoch: int = 0, start: int = 0
) -> list[Batch]:
    """The first batches from there on; `after` is called after each."""
    batches = []
    with closing(pipeline.stream(epoch, start)) as stream:
        for batch in islice(stream, count):
            batches.append(batch)
            after()
    return batches


def content(batches: list[Batch]) -> list[object]:
    """All that training sees of some batches."""
    return [(b.epoch, b.start, b.total, b.last, b.bad, [_micro(m) for m in b.micro]) for b in batches]


def _micro(micro: MicroBatch) -> object:
    layout = (micro.images.shape, micro.images.stride())
    pixels = micro.images.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    return (micro.number, layout, pixels, micro.labels.tolist(), micro.indices.tolist())


@dataclass(frozen=True)
class Task:
    """What a server of a test does."""

    config: RunConfig
    address: str
    log: Path
    key: str = KEY
    pause_s: float = 0.0  # for each batch


class SlowPipeline(Pipeline):
    """Takes its time, so that a server is in the middle of a batch when a test does something to it."""

    pause_s = 0.0

    def make(self, work: Work, pool: Any = None) -> tuple[list[MicroBatch], Bad]:
        if work.total < 100:  # not the samples that are compared at joining
            time.sleep(self.pause_s)
        return super().make(work, pool)


def server(task: Task) -> None:
    """The main of a server process."""
    pipeline = pipeline_of(task.config, batch=1)
    terms = terms_of(task.config, pipeline, "the data server")
    pipeline.__class__ = SlowPipeline
    pipeline.pause_s = task.pause_s  # type: ignore[attr-defined]
    serve(pipeline, terms, task.address, task.key, log=task.log)


# What the pixel operations import when they are first used takes seconds.
preload("torchvision.transforms.v2", "tests.data.service.servers")


@dataclass
class Servers:
    """Data servers on this machine, ended when the test ends."""

    folder: Path
    config: RunConfig
    running: dict[int, ForkServerProcess] = field(default_factory=dict)

    def address(self, number: int) -> str:
        return f"ipc://{self.folder}/data-{number}"

    def start(self, number: int, address: str | None = None, **settings: Any) -> ForkServerProcess:
        """Start a server anew, or another one."""
        self.log(number).unlink(missing_ok=True)
        task = Task(self.config, address or self.address(number), self.log(number), **settings)
        self.running[number] = start(server, task)
        return self.running[number]

    def log(self, number: int) -> Path:
        return self.folder / f"data-{number}.jsonl"

    def logged(self, number: int, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind in a server's log."""
        if not self.log(number).exists():
            return []
        lines = [json.loads(line) for line in self.log(number).read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["kind"] == kind]

    def bound(self, number: int) -> str:
        """The address at which a server listens, once it does."""
        until(lambda: self.logged(number, "start"))
        return str(self.logged(number, "start")[0]["address"])

    def signal(self, number: int, which: int) -> None:
        pid = self.running[number].pid
        assert pid is not None
        os.kill(pid, which)

    def end(self, number: int) -> dict[str, Any]:
        """End a server politely; its last words."""
        process = self.running.pop(number)
        process.terminate()
        process.join(20)
        assert process.exitcode == 0
        return self.logged(number, "end")[0]

    def kill(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()

    def await_all(self) -> None:
        """Until all of them listen."""
        for number in self.running:
            self.bound(number)

    def service(self, *numbers: int, addresses: tuple[str, ...] = (), **settings: Any) -> "TestedService":
        return TestedService(self, (*map(self.address, numbers), *addresses), **settings)


class TestedService(Service):
    """A service that remembers its messages to the user."""

    def __init__(self, servers: Servers, addresses: tuple[str, ...], *, key: str = KEY, **settings: Any) -> None:
        self.messages: list[str] = []
        config = settings.pop("config", servers.config)
        settings.setdefault("patience", Patience(silent_s=1.5, alone_s=0.2, timeout_s=20))
        super().__init__(dict.fromkeys(addresses, key), config, notify=self.messages.append, **settings)

    def said(self, text: str) -> bool:
        return any(text in message for message in self.messages)
