"""`phalanx bench comm`: the cost of gradient exchange, compared with gloo's all-reduce and with no exchange."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from phalanx.bench.report import Table, tell
from phalanx.bench.team import TeamFailed, run_team
from phalanx.bench.until_stopped import until_stopped
from phalanx.errors import UserError
from phalanx.exchange.compress.cast import CastCodec
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.one_bit import OneBitCodec
from phalanx.exchange.compress.top_k import TopKCodec
from phalanx.exchange.compress.two_bit import TwoBitCodec
from phalanx.native.build import native_status
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line

Part = Literal["exchange", "codecs", "cost"]
PARTS: tuple[Part, ...] = ("exchange", "codecs", "cost")
WORKER = "phalanx.bench.comm_worker"
RESNET50_VALUES = 25_557_032
CODECS: dict[str, Callable[[], Codec]] = {
    "fp16": lambda: CastCodec(torch.float16),
    "bf16": lambda: CastCodec(torch.bfloat16),
    "2bit": lambda: TwoBitCodec(rms_factor=2.0),
    "2bit:1": lambda: TwoBitCodec(1.0),
    "1bit": OneBitCodec,
    "topk:0.01": lambda: TopKCodec(0.01),
}


def bench_comm(
    console: Console,
    parts: list[Part],
    *,
    workers: int,
    servers: int,
    rounds: int,
    model: str,
    batch_size: int,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Measure these parts, and report."""
    tables: list[Table] = []
    figures: dict[str, float] = {}
    base = {"model": model, "size": 224, "batch_size": batch_size, "threads": 1, "tcp": False}
    measures: dict[Part, Callable[[], tuple[Table, dict[str, float]]]] = {
        "exchange": lambda: _exchange(console, base | {"measure": "exchange", "rounds": rounds}, workers, servers),
        "codecs": lambda: _codecs(console),
        "cost": lambda: _cost(
            console, base | {"measure": "cost", "rounds": max(2, rounds // 4), "steps": 1}, workers, servers
        ),
    }
    with until_stopped(lambda: tables) as stopped:
        for part in parts:
            table, found = measures[part]()
            tables.append(table)
            figures.update(found)
    for note in stopped.notes:
        print_line(console, note)
    tell(
        console,
        "comm",
        tables,
        figures,
        subject=f"{model}, {workers} workers, {servers} servers",
        fewer_is_better=[name for name in figures if "all-reduce" in name or "copies" in name],
        markdown=markdown,
        json_file=json_file,
        measured={
            "codecs": {
                name: [figures[f"{name} encode GB/s"], figures[f"{name} decode GB/s"]]
                for name in CODECS
                if f"{name} encode GB/s" in figures
            }
        },
    )
    stopped.end()


def _exchange(console: Console, job: dict[str, Any], workers: int, servers: int) -> tuple[Table, dict[str, float]]:
    rows: list[list[str]] = []
    figures: dict[str, float] = {}
    for tcp in (False, True):
        way = "tcp" if tcp else "shared memory"
        results = _team(console, f"exchange over {way}", job | {"tcp": tcp}, workers, servers)
        medians = {name: _median_of_slowest(results, name) for name in results[0]["seconds"]}
        bar = medians["all-reduce"]
        if not tcp:
            rows.append(["gloo all-reduce", f"{1e3 * bar:.0f}", "1.00", ""])
            rows.append(["update, on each worker", f"{1e3 * medians['local update']:.0f}", "", "1.0"])
        copies = max(each["copies"] for each in results)
        ratio = medians["pserver"] / bar
        rows.append(
            [
                f"pserver sync, update included, {way}",
                f"{1e3 * medians['pserver']:.0f}",
                f"{ratio:.2f}",
                f"{copies:.1f}",
            ]
        )
        figures |= {f"pserver/all-reduce, {way}": ratio, f"extra copies, {way}": copies}
    title = (
        f"Exchange of the gradients of {job['model']}, {workers} workers, {servers} servers, medians of {job['rounds']}"
    )
    columns = ("", "ms", "of all-reduce", "extra copies of the parameters in a trainer")
    return Table(title, columns, rows, ("all-reduce is measured without the update that follows it",)), figures


def _codecs(console: Console) -> tuple[Table, dict[str, float]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gradient = torch.randn(RESNET50_VALUES)
    rows: list[list[str]] = []
    figures: dict[str, float] = {}
    with progress(console, "codecs", len(CODECS)) as advance:
        for name, make in CODECS.items():
            codec = make()
            encode, decode = _speeds(codec, gradient)
            share = 4 * gradient.numel() / codec.wire_bytes(gradient.numel())
            rows.append([name, f"{encode:.2f}", f"{decode:.2f}", f"1/{share:.1f}"])
            figures |= {f"{name} encode GB/s": encode, f"{name} decode GB/s": decode}
            advance(1)
    title = "Compression, GB/s of float32 input, one core, best of 5"
    return Table(title, ("", "encode", "decode", "bytes on the wire"), rows, (native_status(),)), figures


def _speeds(codec: Codec, gradient: torch.Tensor) -> tuple[float, float]:
    residual, out = torch.zeros_like(gradient), torch.zeros_like(gradient)
    payload = torch.empty(codec.wire_bytes(gradient.numel()), dtype=torch.uint8)

    def speed(action: Callable[[], object]) -> float:
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - begin)
        return 4e-9 * gradient.numel() / min(seconds)  # other processes can only slow it down

    return speed(lambda: codec.encode(gradient, residual, payload)), speed(lambda: codec.decode(payload, out))


def _cost(console: Console, job: dict[str, Any], workers: int, servers: int) -> tuple[Table, dict[str, float]]:
    results = _team(console, "cost of being distributed", job, workers, servers)
    samples = job["batch_size"] * job["steps"]
    rounds = len(results[0]["seconds"]["independent"])
    speeds = {
        name: [sum(samples / each["seconds"][name][turn] for each in results) for turn in range(rounds)]
        for name in results[0]["seconds"]
    }
    ratios = {
        name: statistics.median(mine / free for mine, free in zip(each, speeds["independent"], strict=True))
        for name, each in speeds.items()
    }
    rows = [
        [name, f"{statistics.median(each):.2f}", f"{min(each):.2f} to {max(each):.2f}", f"{ratios[name]:.3f}"]
        for name, each in speeds.items()
    ]
    title = (
        f"Cost of being distributed: {job['model']} {job['size']}², {workers} workers of one thread, "
        f"batch {job['batch_size']} each, {rounds} turns"
    )
    note = "independent: as many trainers at the same time that exchange nothing; ratios turn by turn, their median"
    figures = {f"{name} of independent": ratio for name, ratio in ratios.items() if name != "independent"}
    return Table(title, ("", "images/s", "spread", "of independent"), rows, (note,)), figures


def _team(console: Console, what: str, job: dict[str, Any], workers: int, servers: int) -> Any:
    with progress(console, what, 100) as advance:
        shown = 0

        def report(share: float) -> None:
            nonlocal shown
            advance(int(100 * share) - shown)
            shown = int(100 * share)

        try:
            return run_team(WORKER, job, workers=workers, servers=servers, tcp=job["tcp"], progress=report)
        except TeamFailed as error:
            raise UserError(
                f"the measurement of {what} ended early",
                why=str(error),
                remedy="`phalanx doctor` shows whether gloo and pyzmq work here",
            ) from error


def _median_of_slowest(results: Any, name: str) -> float:
    """A round ends when its slowest worker has its parameters."""
    return float(
        statistics.median(max(turn) for turn in zip(*(each["seconds"][name] for each in results), strict=True))
    )
