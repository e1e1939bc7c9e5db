"""`phalanx bench train`: images a second of one trainer, compared with other frameworks on the same model."""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from phalanx.bench import matmul as matmul_program
from phalanx.bench import train_peers as peers_program
from phalanx.bench.contender import Contender, ContenderFailed, Turn, peak_of
from phalanx.bench.environments import Found, find_peers, peer_command, refuse_unknown
from phalanx.bench.report import Table, tell
from phalanx.bench.train_peers import PEERS
from phalanx.bench.training import TrainingFailed, synthetic, train_together
from phalanx.config.schema import MachineConfig
from phalanx.errors import UserError
from phalanx.machine.job_settings import choose_for_job, report_machine
from phalanx.machine.openmp import environment_of_others
from phalanx.machine.settings import settings_for
from phalanx.models.listing import cost
from phalanx.observe.progress import progress

OURS = "phalanx"
OTHER = "phalanx, other precision"
CLASSES = 1000
WARM_UP = 2  # steps that are not counted: memory is faulted in, kernels are chosen, graphs compiled
START_TIMEOUT_S = 1800.0  # torch.compile or a step in an emulated precision may take minutes
MATMUL = Turn(1.0, warm_up_s=0.0, warm_up_batches=1)
BACKWARD = 3  # the cost of a training step, in forward passes


@dataclass(frozen=True)
class TrainBenchPlan:
    """The settings of the benchmark."""

    model: str
    batch_size: int
    size: int
    steps: int
    rounds: int
    turn_s: float
    precision: str  # fp32 or bf16: of Phalanx, and of peers with a choice
    threads: int
    both: bool = False  # this CPU computes both natively: Phalanx takes the faster, and is measured in the other, too

    @property
    def ours(self) -> tuple[str, ...]:
        """Our lines."""
        return (OURS, OTHER) if self.both else (OURS,)

    @property
    def subject(self) -> str:
        return f"{self.model} {self.size}² batch {self.batch_size}, {self.precision}, {self.threads} threads"

    def job(self, **more: Any) -> str:
        job = {"model": self.model, "batch": self.batch_size, "size": self.size, "classes": CLASSES}
        return json.dumps({**job, "threads": self.threads, "precision": self.precision, **more})


@dataclass
class Line:
    """One contender's turns by round. Slow or failed ones miss some."""

    precision: str
    parameters: int = 0
    rates: dict[int, float] = field(default_factory=dict)  # images/s
    shares: dict[int, float] = field(default_factory=dict)  # of the matmul rate
    peak_bytes: int = 0
    starts: dict[int, float] = field(default_factory=dict)  # seconds until the first step

    def note(self, number: int, rate: float, share: float | None, peak_bytes: int, start_s: float) -> None:
        """`share` is of one image a second."""
        self.rates[number], self.starts[number] = rate, start_s
        if share is not None:
            self.shares[number] = rate * share
        self.peak_bytes = max(self.peak_bytes, peak_bytes)


@dataclass
class Measured:
    """The results of all turns."""

    lines: dict[str, Line] = field(default_factory=dict)
    matmul: dict[str, dict[int, float]] = field(default_factory=dict)  # FLOP/s by precision and round
    remarks: dict[str, str] = field(default_factory=dict)  # why a contender has no turns, or fewer
    stopped: str = ""  # the progress, if the user interrupted


def make_plan(
    model: str, batch_size: int, size: int, steps: int, rounds: int, turn_s: float, precision: str = "auto"
) -> TrainBenchPlan:
    """The plan, with `auto` resolved for this machine."""
    if precision not in ("auto", "fp32", "bf16"):
        raise UserError(
            f"--precision {precision} is not known",
            why="unknown, or not for a comparison",
            remedy="auto, fp32, bf16",
        )
    config = MachineConfig.model_validate({"precision": precision})
    job_settings = choose_for_job(config, [report_machine(config)])
    chosen, threads = job_settings.machine.precision, settings_for(job_settings).threads
    return TrainBenchPlan(
        *(model, batch_size, size, steps, rounds, turn_s, chosen, threads),
        job_settings.both_precisions,
    )


def bench_train(
    console: Console,
    plan: TrainBenchPlan,
    peers: Sequence[str] | None,
    peer_pythons: dict[str, str],
    *,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Measure in turns, and report. `peers` None: all that are installed."""
    refuse_unknown([*(peers or []), *peer_pythons], PEERS)
    macs = cost(plan.model, plan.size).macs  # raises for an unknown model
    found = find_peers({name: modules for name, (_, modules) in PEERS.items()}, peers, peer_pythons)
    load = os.getloadavg()[0]
    work = None if macs is None else 2.0 * macs * BACKWARD
    measured = _measure(console, plan, found, work)
    table = make_table(plan, measured, found, work, load)
    tell(
        console,
        "train",
        [table],
        make_figures(measured),
        subject=plan.subject,
        versions=found.versions,
        markdown=markdown,
        json_file=json_file,
        measured={
            "model": plan.model,
            "image_size": plan.size,
            "batch_size": plan.batch_size,
            "images_per_s": statistics.median(measured.lines[OURS].rates.values()),
        },
    )
    if measured.stopped:
        raise KeyboardInterrupt


def _measure(console: Console, plan: TrainBenchPlan, found: Found, work: float | None) -> Measured:
    """Run all rounds. Each contender runs alone in its own process."""
    measured = Measured()
    turns, taken = plan.rounds * (len(plan.ours) + len(found.pythons)), 0
    with progress(console, "turns", turns) as advance:
        try:
            for number in range(plan.rounds):
                for name, python in {**dict.fromkeys(plan.ours, ""), **found.pythons}.items():
                    if name in plan.ours:
                        _our_turn(name, plan, number, measured, work)
                    elif name not in measured.remarks:
                        _turn_of(name, python, plan, number, measured, work)
                    advance(1)
                    taken += 1
        except KeyboardInterrupt:
            if OURS not in measured.lines:
                raise
            measured.stopped = f"stopped by you after {taken} of {turns} turns"
    return measured


def _our_turn(name: str, plan: TrainBenchPlan, number: int, measured: Measured, work: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        out = Path(folder) / "run"
        words = synthetic(plan.model, plan.size, plan.batch_size, WARM_UP + plan.steps)
        words += [
            "--precision",
            asked_precision(name, plan, measured),
            "--out",
            str(out),
            f"data.synthetic.classes={CLASSES}",
        ]
        try:
            (trained,) = train_together([(["train", *words], out)])
        except TrainingFailed as error:
            raise UserError(
                f"{plan.model} cannot be trained", why=str(error), remedy="`phalanx models` lists what there is"
            ) from error
    times = [record["t"] for record in trained.steps()]
    rate = plan.batch_size * plan.steps / max(1e-3, times[-1] - times[WARM_UP - 1])
    start = next(record for record in trained.records if record["kind"] == "start")
    precision = str(start["decisions"]["precision"]).partition(" ")[0]
    line = measured.lines.setdefault(name, Line(precision, start["parameters"]))
    line.note(
        number, rate, _share(plan, number, measured, line.precision, work), trained.peak_bytes, times[0] - trained.begun
    )


def asked_precision(name: str, plan: TrainBenchPlan, measured: Measured) -> str:
    """The value of --precision: what a user gets first, then the other one."""
    if name == OURS:
        return "auto" if plan.both else plan.precision
    return "fp32" if measured.lines[OURS].precision == "bf16" else "bf16"


def _turn_of(name: str, python: str, plan: TrainBenchPlan, number: int, measured: Measured, work: float | None) -> None:
    command = peer_command(python, peers_program.__file__, name, plan.job())
    turn = Turn(plan.turn_s, plan.steps, warm_up_s=0.0, warm_up_batches=WARM_UP - 1)
    try:
        with Contender(
            name,
            command,
            environment_of_others(),
            memory=peak_of,
            start_timeout_s=START_TIMEOUT_S,
            answer_timeout_s=START_TIMEOUT_S,
        ) as it:
            about = it.wait_until_ready()
            made = it.take_turn(turn)
    except ContenderFailed as error:
        measured.remarks[name] = str(error)
        return
    line = measured.lines.setdefault(name, Line(about["precision"], about["parameters"]))
    share = _share(plan, number, measured, line.precision, work)
    line.note(number, it.turns.rates[0], share, it.turns.memory_bytes, it.ready_s)
    if made < plan.steps * plan.batch_size and number + 1 < plan.rounds:
        step_s = plan.batch_size / it.turns.rates[0]
        measured.remarks[name] = (
            f"measured in round {number + 1} only, since a step takes {step_s:.0f} s and a turn {plan.turn_s:.0f} s"
        )


def _share(plan: TrainBenchPlan, number: int, measured: Measured, precision: str, work: float | None) -> float | None:
    """One image a second as a share of the machine's matmul rate in the same round."""
    if work is None:
        return None
    rates = measured.matmul.setdefault(precision, {})
    if number not in rates:
        command = peer_command(sys.executable, matmul_program.__file__, "matmul", plan.job(precision=precision))
        with Contender("matmul", command) as it:
            it.wait_until_ready()
            it.take_turn(MATMUL)
        rates[number] = it.turns.rates[0]
    return work / rates[number]


def make_table(plan: TrainBenchPlan, measured: Measured, found: Found, work: float | None, load: float) -> Table:
    """Medians, the fastest first."""
    ours = measured.lines[OURS]
    lines = sorted(measured.lines.items(), key=lambda item: -statistics.median(item[1].rates.values()))
    rows = [
        [
            name,
            line.precision,
            f"{statistics.median(line.rates.values()):,.2f}",
            f"{min(line.rates.values()):,.2f} to {max(line.rates.values()):,.2f}",
            f"{_ratio(ours, line):.2f}",
            f"{100 * statistics.median(line.shares.values()):.0f} %" if line.shares else "-",
            f"{line.peak_bytes / 1e6:,.0f}",
            f"{statistics.median(line.starts.values()):.1f}" if line.starts else "-",
        ]
        for name, line in lines
    ]
    title = (
        f"Training {plan.model}, {plan.size}², batches of {plan.batch_size}, {plan.threads} threads, "
        f"{plan.rounds} turns of {plan.steps} steps"
    )
    columns = (
        "",
        "precision",
        "images/s",
        "spread",
        "phalanx is …×",
        "of matmul rate",
        "peak memory MB",
        "first step s",
    )
    return Table(title, columns, rows, tuple(_notes(measured, found, work, load)))


def _notes(measured: Measured, found: Found, work: float | None, load: float) -> list[str]:
    products = ", ".join(
        f"{statistics.median(each.values()) / 1e9:,.0f} GFLOP/s in {precision}"
        for precision, each in measured.matmul.items()
    )
    counted = "its work could not be counted" if work is None else f"{work / 1e9:.1f} GFLOP an image"
    said = {
        "pytorch": "fp32, NCHW, as most scripts are",
        "pytorch-tuned": "bf16, channels_last, torch.compile, fused SGD",
        "pytorch-tuned-fp32": "fp32, channels_last, torch.compile, fused SGD",
        "timm": "the step of timm's training script, channels_last",
    }
    named = {name: f"{name} {found.versions.get(name, '')}".strip() for name in measured.lines}
    notes = [
        "phalanx is …×: how many times as fast Phalanx was in the same rounds, their median",
        "first step s: from the start of the process to the end of its first step, everything included",
        f"matrix products of this machine, measured in each round: {products or 'none'}; training takes {counted}",
        *(f"{named[name]}: {said[name]}" for name in said if name in measured.lines),
        *(named[name] for name in measured.lines if name not in said and name not in (OURS, OTHER)),
        "peers train on one batch in memory, in the environment as it is; Phalanx's run includes its input",
    ]
    if "bf16" in measured.matmul and _emulated(measured):
        notes.append("this CPU emulates bf16, slower than it computes in fp32: a share of that rate says little")
    if load > 0.5:
        notes.append(f"others kept the machine busy when this began (load {load:.1f}); spinning threads suffer from it")
    ours = measured.lines[OURS].parameters
    notes += [
        f"{name} has {line.parameters:,} parameters instead of {ours:,}: it is another model"
        for name, line in measured.lines.items()
        if line.parameters != ours
    ]
    notes += [f"{name}: {why}" for name, why in measured.remarks.items()]
    notes += [measured.stopped] if measured.stopped else []
    if found.absent:
        notes.append(f"not installed: {', '.join(found.absent)} (an environment is named by --peer-env NAME=PATH)")
    return notes


def _emulated(measured: Measured) -> bool:
    rates = {precision: statistics.median(each.values()) for precision, each in measured.matmul.items()}
    return rates["bf16"] < rates.get("fp32", 0.0)


def _ratio(ours: Line, other: Line) -> float:
    return statistics.median(ours.rates[number] / rate for number, rate in other.rates.items())


def make_figures(measured: Measured) -> dict[str, float]:
    """The results for the history."""
    ours = measured.lines[OURS]
    figures = {"images/s": statistics.median(ours.rates.values())}
    if ours.shares:
        figures["share of matmul rate"] = statistics.median(ours.shares.values())
    others = {name: line for name, line in measured.lines.items() if name != OURS}
    return figures | {f"phalanx / {name}": _ratio(ours, line) for name, line in others.items()}
