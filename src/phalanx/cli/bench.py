"""`phalanx bench …`: benchmarks. Each measures peers in the same run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phalanx.errors import UserError, nearest
from phalanx.signals import interrupt_at_sigterm

app = typer.Typer(no_args_is_help=True)

Markdown = Annotated[Path | None, typer.Option(help="also write the tables to this file, as Markdown")]
Json = Annotated[Path | None, typer.Option("--json", help="also write tables, machine and versions to this file")]
Peers = Annotated[str, typer.Option(help="all that are installed, none, or names with commas")]
PeerEnv = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PATH", help="a peer's own Python or virtual environment; may be repeated"),
]


@app.callback()
def begin() -> None:
    """Benchmark training, input and exchange against other systems."""
    interrupt_at_sigterm()


@app.command()
def train(
    model: Annotated[str, typer.Option(help="a name that `phalanx models` lists")] = "resnet50",
    batch_size: Annotated[int, typer.Option(min=2)] = 32,
    size: Annotated[int, typer.Option(min=1, help="height and width of the images")] = 224,
    steps: Annotated[int, typer.Option(min=1, help="steps of each turn, after two warm-up steps")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each")] = 3,
    turn_seconds: Annotated[float, typer.Option(min=0.1, help="limit of a slow peer's turn, at least one step")] = 120,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16: of Phalanx, and of peers that can choose")] = "auto",
    peers: Peers = "all",
    peer_env: PeerEnv = None,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Training: images/s of one trainer, compared with PyTorch, timm, TensorFlow, Paddle, MXNet on the same model."""
    from phalanx.bench.environments import parse_environments

    pythons = parse_environments(peer_env or [])
    from phalanx.bench.train import bench_train, make_plan

    plan = make_plan(model, batch_size, size, steps, rounds, turn_seconds, precision)
    bench_train(Console(), plan, _names(peers), pythons, markdown=markdown, json_file=json_file)


def _names(peers: str) -> list[str] | None:
    return {"all": None, "none": []}.get(peers, peers.split(","))


@app.command()
def threads(
    model: Annotated[str, typer.Option(help="a name that `phalanx models` lists")] = "cifar_resnet8",
    batch_size: Annotated[int, typer.Option(min=2)] = 64,
    size: Annotated[int, typer.Option(min=1, help="height and width of the images")] = 16,
    load: Annotated[str, typer.Option(help="busy processes beside it, such as 0,4,8")] = "0,8",
    seconds: Annotated[float, typer.Option(min=0.1, help="of each turn")] = 6.0,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each")] = 3,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16")] = "auto",
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Threads: images/s of one trainer with 1 thread, one a core, and our choice; alone and beside busy processes."""
    from phalanx.bench.threads import ThreadsPlan, bench_threads, parse_loads

    plan = ThreadsPlan(model, batch_size, size, parse_loads(load), seconds, rounds, precision)
    bench_threads(Console(), plan, markdown=markdown, json_file=json_file)


@app.command()
def scaling(
    workers: Annotated[str, typer.Option(help="numbers of workers, such as 1,2,4; 1 is always measured")] = "1,2",
    update_method: Annotated[str, typer.Option(help="collective or pserver")] = "collective",
    mode: Annotated[str | None, typer.Option(help="pserver: sync, async, ssp:S; default sync")] = None,
    servers: Annotated[int | None, typer.Option(min=1, help="pserver: how many; default 1")] = None,
    compress: Annotated[str, typer.Option(help="as for `phalanx train`: none, fp16, 2bit …")] = "none",
    only: Annotated[str | None, typer.Option(help="weak or strong; default both")] = None,
    model: Annotated[str, typer.Option(help="a name that `phalanx models` lists")] = "resnet50",
    batch_size: Annotated[int, typer.Option(min=2, help="weak: of each worker; strong: of all together")] = 16,
    size: Annotated[int, typer.Option(min=1, help="height and width of the images")] = 224,
    steps: Annotated[int, typer.Option(min=2, help="steps of each run, after two warm-up steps")] = 6,
    rounds: Annotated[int, typer.Option(min=1, help="runs of each")] = 3,
    launcher: Annotated[str | None, typer.Option(help="of `phalanx launch`; default ssh where hosts are named")] = None,
    hostfile: Annotated[Path | None, typer.Option("-H", "--hostfile", help="one host a line")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw it: .png, .svg or .pdf")] = None,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Scaling: time, speed-up and efficiency by number of workers, weak and strong, and where the rest is lost."""
    from phalanx.api.launch_options import LAUNCHERS
    from phalanx.bench.scaling_plan import KINDS, ScalingPlan, parse_workers, refuse_uneven
    from phalanx.cli.launch import parse_train
    from phalanx.cli.main import request_from

    if update_method not in ("collective", "pserver"):
        raise UserError(
            f"--update-method {update_method} does not scale",
            why="workers must share their updates",
            remedy="collective or pserver",
        )
    if update_method != "pserver" and (mode or servers):
        raise UserError(
            f"{'--mode' if mode else '--servers'} cannot be used with --update-method {update_method}",
            why="only pserver has parameter servers",
            remedy="leave it out, or --update-method pserver",
        )
    launcher = launcher or ("ssh" if hostfile else None)
    if launcher is not None and launcher not in LAUNCHERS:
        raise UserError(f"there is no launcher {launcher!r}", why="unknown name", remedy=nearest(launcher, LAUNCHERS))
    if only not in (None, *KINDS):
        raise UserError(f"--only {only} is not known", why="unknown kind of scaling", remedy="weak or strong")
    kinds = tuple(kind for kind in KINDS if only in (None, kind))
    counts = parse_workers(workers)
    job = (update_method, mode or "sync", servers or 1)
    plan = ScalingPlan(counts, *job, model, batch_size, size, steps, rounds, launcher, hostfile, compress, kinds)
    refuse_uneven(plan)
    request_from(parse_train(plan.words("weak", max(counts), independent=False)))  # raises the errors of `train`
    from phalanx.bench.scaling import bench_scaling

    bench_scaling(Console(), plan, markdown=markdown, json_file=json_file, plot=plot)


@app.command("time-to-accuracy")
def time_to_accuracy(
    settings: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE [KEY=VALUE]...", help="a recipe's name or file, and settings as for `train`"),
    ],
    target: Annotated[str, typer.Option(help="top-1 on the validation data: 0.94 or 94%")],
    seeds: Annotated[str, typer.Option(help="how many runs, with seeds from 0; or a list such as 1,2")] = "3",
    data: Annotated[str | None, typer.Option(help="as for `phalanx train`")] = None,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Training to an accuracy: wall seconds, start-up and validation included, mean and spread over seeds."""
    from phalanx.bench.time_to_accuracy import bench_time_to_accuracy, parse_seeds, parse_target
    from phalanx.cli.launch import parse_train
    from phalanx.cli.main import request_from

    share, chosen = parse_target(target), parse_seeds(seeds)
    words = [*settings, *(["--data", data] if data else [])]
    name = request_from(parse_train(words)).resolved.config.name  # raises the errors of `train`
    bench_time_to_accuracy(Console(), words, name, share, chosen, markdown=markdown, json_file=json_file)


@app.command()
def comm(
    only: Annotated[list[str] | None, typer.Option(help="exchange, codecs or cost; may be repeated")] = None,
    workers: Annotated[int, typer.Option(min=2)] = 2,
    servers: Annotated[int, typer.Option(min=1)] = 1,
    rounds: Annotated[int, typer.Option(min=2, help="exchanges to measure; the cost takes a quarter of it")] = 20,
    model: Annotated[str, typer.Option()] = "resnet50",
    batch_size: Annotated[int, typer.Option(min=1, help="of each worker, for the cost")] = 16,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Gradient exchange: pserver compared with gloo, compression, and the cost of distribution."""
    from phalanx.bench.comm import PARTS, bench_comm

    for name in only or []:
        if name not in PARTS:
            raise UserError(f"{name!r} is not a part of `bench comm`", why="unknown part", remedy=nearest(name, PARTS))
    parts = [part for part in PARTS if only is None or part in only]
    bench_comm(
        Console(),
        parts,
        workers=workers,
        servers=servers,
        rounds=rounds,
        model=model,
        batch_size=batch_size,
        markdown=markdown,
        json_file=json_file,
    )


@app.command("io")
def input_speed(
    data: Annotated[str, typer.Argument(help="photographs: PATH or FORMAT:PATH")],
    size: Annotated[int, typer.Option(min=1)] = 224,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    threads: Annotated[int | None, typer.Option(min=1, help="and workers of peers; default: one per core")] = None,
    decode: Annotated[str, typer.Option(help="fast or exact")] = "fast",
    peers: Peers = "all",
    peer_env: PeerEnv = None,
    service: Annotated[
        bool, typer.Option("--service", help="batches from a local data server instead, compared with our own")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each turn")] = 4.0,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Input: images/s from disk to batch, compared with torchvision, timm, tf.data, DALI, FFCV and others."""
    if service:
        from phalanx.bench.service import bench_service

        files = {"markdown": markdown, "json_file": json_file}
        bench_service(Console(), data, threads=threads, batch_size=batch_size, rounds=rounds, seconds=seconds, **files)
        return
    from phalanx.bench.environments import parse_environments

    pythons = parse_environments(peer_env or [])
    if decode not in ("fast", "exact"):
        raise UserError(f"--decode {decode} is not known", why="unknown value", remedy="fast or exact")
    from phalanx.bench.io import IoPlan, bench_io
    from phalanx.machine.cores import cores

    plan = IoPlan(size, batch_size, threads or cores(), decode, rounds, seconds)
    bench_io(Console(), data, plan, _names(peers), pythons, markdown=markdown, json_file=json_file)


@app.command()
def history(
    benchmark: Annotated[str | None, typer.Argument(help="such as comm; default: all")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw the results over time: .png, .svg or .pdf")] = None,
) -> None:
    """Show earlier results of this machine."""
    from phalanx.bench.show_history import show_history

    show_history(Console(), benchmark, plot)


@app.command()
def launch() -> None:
    """Launch time by number of hosts: up to 500 simulated ones, with logins of a second."""
    from phalanx.bench.launch import bench_launch

    bench_launch(Console())
