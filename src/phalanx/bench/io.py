"""`phalanx bench io`: images a second from disk to batch, compared with other loaders on the same files."""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from phalanx.bench import peers as peers_program
from phalanx.bench.contender import Contender, ContenderFailed, Turn
from phalanx.bench.environments import find_peers, peer_command, refuse_unknown
from phalanx.bench.io_stages import stages
from phalanx.bench.peers import PEERS
from phalanx.bench.report import Table, tell
from phalanx.bench.until_stopped import Stopped, until_stopped
from phalanx.config.schema import DataConfig
from phalanx.data.decode.jpeg import decoder_status, find_decoder
from phalanx.data.order import Indices
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.folders import DISK, FileSource
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import open_parts
from phalanx.errors import UserError
from phalanx.native.build import SWITCH
from phalanx.observe.progress import progress

OURS, PILLOW, BOUND = "phalanx", "phalanx, Pillow alone", "libjpeg-turbo, entropy coding alone"
JPEG_START = b"\xff\xd8"


@dataclass(frozen=True)
class IoPlan:
    """The settings of the benchmark."""

    size: int
    batch_size: int
    threads: int
    decode: str
    rounds: int
    seconds: float
    reads: int = 3072  # samples that all contenders read repeatedly


def bench_io(
    console: Console,
    data: str,
    plan: IoPlan,
    peers: Sequence[str] | None,
    peer_pythons: dict[str, str],
    *,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Measure in turns, and report. `peers` None: all that are installed."""
    refuse_unknown([*(peers or []), *peer_pythons], PEERS)
    parts, notes = open_parts(DataConfig(source=data), threads=0)
    source = parts["train"]
    is_encoded = isinstance(source, EncodedSource)
    if (peers or peer_pythons) and not is_encoded:
        raise UserError(
            f"{data} cannot be compared with other loaders",
            why="its images are decoded already, and other loaders read JPEG files",
            remedy="--peers none, or give the files it was made from",
        )
    modules = {name: needed for name, (_, needed) in PEERS.items()} if is_encoded else {}
    found = find_peers(modules, peers, peer_pythons)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as scratch:
        indices, left_out = _chosen(source, plan.reads)
        notes = [*notes, *left_out]
        job: dict[str, Any] = {
            "source": data,
            "indices": indices.tolist(),
            "decode": plan.decode,
            "size": plan.size,
            "batch": plan.batch_size,
            "threads": plan.threads,
            "scratch": scratch,
        }
        if isinstance(source, EncodedSource):
            job["root"] = str(_lay_out(console, source, indices, Path(scratch, "images")))
            if isinstance(source, FileSource):
                job |= {"source": f"folder:{job['root']}", "indices": None}
        results, failed, stopped = _measure(console, _commands(job, found.pythons), plan)
        split = {} if stopped.happened else stages(source, indices, plan.size)
    if found.absent:
        notes.append(f"not installed: {', '.join(found.absent)}")
    notes += [*(f"{name}: {reason}" for name, reason in failed.items()), *stopped.notes]
    tables, figures = _tables(source, plan, results, split, notes)
    tell(
        console,
        "io",
        tables,
        figures,
        subject=f"{source.description}, {plan.size}² {plan.decode}, {plan.threads} threads",
        versions=found.versions,
        markdown=markdown,
        json_file=json_file,
        measured={"input_images_per_s": figures["images/s"]},
    )
    stopped.end()


def _chosen(source: Labelled, reads: int) -> tuple[Indices, list[str]]:
    """The samples to read: a part of a large set, or a small set repeated; and a note."""
    indices = np.random.default_rng(0).permutation(len(source))[:reads]
    notes = []
    if isinstance(source, EncodedSource):
        jpegs = np.array([source.encoded(int(index))[:2] == JPEG_START for index in indices], dtype=np.bool_)
        if not jpegs.any():
            raise UserError(
                "there are no JPEGs to measure with",
                why=f"{source.description} holds images of other formats",
                remedy="give photographs, such as ImageNet's",
            )
        if not jpegs.all():
            notes.append(f"{np.sum(~jpegs):,} samples that are not JPEGs are left out, which some peers cannot read")
        indices = indices[jpegs]
    return np.resize(indices, reads), notes


def _lay_out(console: Console, source: EncodedSource, indices: Indices, root: Path) -> Path:
    """Class folders of the chosen samples: links to files, or new files."""
    with progress(console, "files for all contenders", len(indices)) as advance:
        for number, index in enumerate(indices.tolist()):
            place = root / f"{source.labels[index]:05}" / f"{number:06}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, FileSource) and source.storage is DISK:
                place.symlink_to(Path(source.name(index)).absolute())
            else:
                place.write_bytes(source.encoded(index))
            advance(1)
    return root


Commands = dict[str, tuple[list[str], dict[str, str]]]


def _commands(job: dict[str, Any], pythons: dict[str, str]) -> Commands:
    """The contenders: name → command and environment."""
    ours = [sys.executable, "-m", "phalanx.bench.io_phalanx"]
    text = json.dumps(job)
    commands: Commands = {OURS: ([*ours, "pipeline", text], {})}
    if "root" in job and find_decoder() is not None:
        commands[PILLOW] = ([*ours, "pipeline", text], {**os.environ, SWITCH: "0"})
        commands[BOUND] = ([*ours, "entropy", text], {})
    for name, python in pythons.items():
        commands[name] = (peer_command(python, peers_program.__file__, name, text), {})
    return commands


def _measure(
    console: Console, commands: Commands, plan: IoPlan
) -> tuple[dict[str, Contender], dict[str, str], Stopped]:
    """Run all contenders. Returns their turns, why others have none, and whether it was stopped."""
    contenders: dict[str, Contender] = {}
    failed: dict[str, str] = {}
    with (
        ExitStack() as stack,
        progress(console, "bench io", len(commands) * (1 + plan.rounds)) as advance,
        until_stopped(lambda: OURS in contenders and contenders[OURS].turns.rates) as stopped,
    ):
        started = [stack.enter_context(Contender(name, *command)) for name, command in commands.items()]
        for contender in started:
            try:
                contender.wait_until_ready()
                contenders[contender.name] = contender
            except ContenderFailed as error:
                failed[contender.name] = str(error)
            advance(1)
        for _ in range(plan.rounds):
            for name in list(contenders):
                try:
                    contenders[name].take_turn(Turn(plan.seconds))
                except ContenderFailed as error:
                    failed[name] = str(error)
                    del contenders[name]
                advance(1)
    if OURS not in contenders:
        raise RuntimeError(f"Phalanx itself could not be measured: {failed[OURS]}")
    return {name: one for name, one in contenders.items() if one.turns.rates}, failed, stopped


def _tables(
    source: Labelled, plan: IoPlan, results: dict[str, Contender], split: dict[str, float], notes: Sequence[str]
) -> tuple[list[Table], dict[str, float]]:
    turns = {name: contender.turns for name, contender in results.items()}
    ratios = {
        name: statistics.median(ours / its for ours, its in zip(turns[OURS].rates, each.rates, strict=False))
        for name, each in turns.items()
    }
    rows = [
        [
            name,
            f"{statistics.median(each.rates):,.0f}",
            f"{min(each.rates):,.0f} to {max(each.rates):,.0f}",
            f"{ratios[name]:.2f}",
            f"{1e3 * statistics.median(each.cpu_s):.2f}",
            f"{each.memory_bytes / 1e6:,.0f}",
        ]
        for name, each in sorted(turns.items(), key=lambda item: -statistics.median(item[1].rates))
    ]
    title = (
        f"Decode, random-resized crop to {plan.size}, flip, batches of {plan.batch_size}, {plan.threads} threads or "
        f"workers, {plan.rounds} turns of {plan.seconds:g} s: {source.description}"
    )
    by = [f"JPEGs by {decoder_status()}; decode: {plan.decode}"] if isinstance(source, EncodedSource) else []
    said = (
        *by,
        "phalanx is …×: how many times as fast Phalanx was in the same turns, their median",
        *notes,
    )
    columns = ("", "images/s", "spread", "phalanx is …×", "CPU ms/image", "memory MB")
    figures = {"images/s": statistics.median(turns[OURS].rates)}
    figures |= {f"phalanx / {name}": ratio for name, ratio in ratios.items() if name != OURS}
    parts = [[name, f"{microseconds:,.0f}"] for name, microseconds in split.items()]
    one = Table("Phalanx, one image in one thread", ("", "CPU µs"), parts)
    return [Table(title, columns, rows, said), *([one] if parts else [])], figures
