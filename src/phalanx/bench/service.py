"""`phalanx bench io --service`: batches from a data server on this machine, compared with a trainer's own."""

import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from phalanx.bench.report import Table, tell
from phalanx.bench.until_stopped import until_stopped
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import Layer, nest, resolve
from phalanx.config.schema import RunConfig
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.client import Service
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.machine.settings import keep_freed_memory
from phalanx.observe.progress import progress

_RECIPE = "images"
_WARM_UP = 4  # batches: the first ones fill memory and start threads


def bench_service(
    console: Console,
    data: str,
    *,
    threads: int | None,
    batch_size: int,
    rounds: int,
    seconds: float,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Measure both, in turns, on the same files with the same number of threads, and report."""
    threads = threads or cores()
    config = resolve([*load_recipe(_RECIPE).layers, Layer("DATA", nest("data.source", data))]).config
    keep_freed_memory()
    source = open_data(config.data, threads=threads).train
    alone: list[float] = []
    served: list[float] = []
    with (
        _server(config, threads) as service,
        progress(console, "rounds", 2 * rounds) as advance,
        until_stopped(lambda: served) as stopped,
    ):
        local = training_pipeline(config, source, batch=batch_size, threads=threads)
        remote = training_pipeline(config, source, batch=batch_size, threads=threads, remote=service)
        for _ in range(rounds):
            for pipeline, rates in ((local, alone), (remote, served)):
                rates.append(_rate(pipeline, seconds))
                way = service.report()[0]["by"]
                advance(1)
    ratio = statistics.median(there / here for here, there in zip(alone, served, strict=False))
    rows = [_row("in the trainer's process", alone), _row(f"one data server, {way}", served)]
    title = f"Training batches of {batch_size} from {source.description}, {threads} threads, {rounds} rounds"
    note = f"the data server makes {ratio:.2f} of the trainer's own rate (median of the rounds' ratios)"
    figures = {"trainer images/s": statistics.median(alone), "data server images/s": statistics.median(served)}
    columns = ("", "images/s", "lowest", "highest")
    table = Table(title, columns, rows, (note, *stopped.notes))
    tell(console, "service", [table], figures | {"ratio": ratio}, markdown=markdown, json_file=json_file)
    stopped.end()


def _row(name: str, rates: list[float]) -> list[str]:
    return [name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}"]


def _rate(pipeline: Pipeline, seconds: float) -> float:
    with closing(pipeline.stream()) as batches:
        for _ in range(_WARM_UP):
            next(batches)
        begin, samples = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < seconds or not samples:
            samples += next(batches).total
    return samples / elapsed


@contextmanager
def _server(config: RunConfig, threads: int) -> Iterator[Service]:
    """A data server in a separate process, as a user would start it."""
    key = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
        address = f"ipc://{folder}/data"
        words = ["serve-data", _RECIPE, "--data", config.data.source, "--bind", address, "--threads", str(threads)]
        process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", *words],
            env={**os.environ, "PHALANX_KEY": key},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            _await(process)
            yield Service({address: key}, config, name="bench")
        finally:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line.strip())
        if re.search(r"serving .* at ", line):
            return
    raise UserError(
        "the data server did not start", why=" / ".join(heard[-3:]), remedy="start `phalanx serve-data` by hand"
    )
