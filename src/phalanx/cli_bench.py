"""`phalanx bench …`: measurements that anyone can rerun, each beside a peer in the same run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phalanx.errors import UserError, nearest

app = typer.Typer(no_args_is_help=True, help="Measure training, input and exchange beside what else one would run.")

Markdown = Annotated[Path | None, typer.Option(help="also write the tables to this file, as Markdown")]
Json = Annotated[Path | None, typer.Option("--json", help="also write tables, machine and versions to this file")]


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
    """Exchange of gradients: pserver beside gloo, compression, and what being distributed costs."""
    from phalanx.bench.comm import PARTS, bench_comm

    for name in only or []:
        if name not in PARTS:
            raise UserError(f"{name!r} is no part of `bench comm`", why="unknown part", remedy=nearest(name, PARTS))
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
    peers: Annotated[str, typer.Option(help="all that are installed, none, or names with commas")] = "all",
    peer_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PYTHON", help="run a peer by this Python; may be repeated")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each turn")] = 4.0,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Input: images/s from disk to batch, beside torchvision, timm, tf.data, DALI, FFCV and others."""
    pythons = dict(_pair(text) for text in peer_env or [])
    if decode not in ("fast", "exact"):
        raise UserError(f"--decode {decode} is not known", why="unknown value", remedy="fast or exact")
    from phalanx.bench.io import Plan, bench_io, default_threads

    names = {"all": None, "none": []}.get(peers, peers.split(","))
    plan = Plan(size, batch_size, threads or default_threads(), decode, rounds, seconds)
    bench_io(Console(), data, plan, names, pythons, markdown=markdown, json_file=json_file)


def _pair(text: str) -> tuple[str, str]:
    name, _, python = text.partition("=")
    if not python:
        raise UserError(
            f"--peer-env {text!r} names no Python",
            why="it is written NAME=PYTHON",
            remedy="such as --peer-env tf.data=/path/to/env/bin/python",
        )
    return name, python


@app.command()
def service(
    data: Annotated[str, typer.Argument(help="images to read: a PATH, or FORMAT:PATH")],
    threads: Annotated[int | None, typer.Option(min=1, help="that decode, on either side; default: one a core")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="of each, in turns")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each round")] = 5.0,
    markdown: Markdown = None,
    json_file: Json = None,
) -> None:
    """Input from a data server on this machine, beside the trainer's own pipeline."""
    from phalanx.bench.service import bench_service

    bench_service(
        Console(),
        data,
        threads=threads,
        batch_size=batch_size,
        rounds=rounds,
        seconds=seconds,
        markdown=markdown,
        json_file=json_file,
    )


@app.command()
def history(
    benchmark: Annotated[str | None, typer.Argument(help="such as comm; default: all")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw the figures over time: .png, .svg or .pdf")] = None,
) -> None:
    """What was measured before on this machine."""
    from phalanx.bench.show_history import show_history

    show_history(Console(), benchmark, plot)


@app.command()
def launch() -> None:
    """How starting a job grows with the number of hosts: up to 500 pretended ones, whose login takes a second."""
    from phalanx.bench.launch import bench_launch

    bench_launch(Console())
