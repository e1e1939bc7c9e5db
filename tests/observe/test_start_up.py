"""What a run prints when it starts: six lines, notes and warnings; the rest in the log and with --verbose."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.observe.start_up import StartUp, describe_start, is_verbose
from phalanx.runs.events import Start

START = Start(
    command="phalanx train digits",
    model="wrn10_1",
    parameters=77_562,
    data="scikit-learn digits, 1,442 × 8×8×1",
    train_samples=1442,
    val_samples=355,
    classes=10,
    steps_per_epoch=12,
    total_steps=30,
    samples_per_step=128,
    decisions={"device": "cpu (no GPU found)", "precision": "fp32 (as you set it)", "threads": "2 (2 cores, 1 worker)"},
    notes=[],
)


def described(*settings: str, role: Role | None = None, warnings: list[str] | None = None) -> StartUp:
    config = resolve([parse_override(each) for each in ("name=digits", *settings)]).config
    return describe_start(
        START,
        config,
        role or Role(),
        folder="runs/digits",
        peak_lr=0.2,
        notes=["validation: 10 % held out"],
        warnings=warnings or [],
        log_notes=["timed 3 convolutions"],
    )


def printed(start_up: StartUp, *, verbose: bool, terminal: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal, color_system=None)
    start_up.print_to(console, verbose=verbose)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_screen_shows_six_lines_notes_and_warnings() -> None:
    lines = printed(described(warnings=["bf16 is slow on this host"]), verbose=False)
    assert lines == [
        "run: digits, 2.5 epochs = 30 steps",
        "data: scikit-learn digits, 1,442 × 8×8×1; 355 for validation; 10 classes",
        "model: wrn10_1, 77,562 parameters",
        "batch: 128 samples a step",
        "device: cpu (no GPU found), fp32 (as you set it)",
        "folder: runs/digits",
        "note: validation: 10 % held out",
        "warning: bf16 is slow on this host",
    ]
    on_terminal = printed(described(), verbose=False, terminal=True)
    assert [line.split()[0] for line in on_terminal[:6]] == [line.partition(":")[0] for line in lines[:6]]


def test_verbose_and_the_log_have_every_decision() -> None:
    start_up = described("schedule.warmup=1ep", "schedule.warmup_start=0.1")
    lines = printed(start_up, verbose=True)
    assert lines == start_up.text().splitlines()
    for line in (
        "optimizer: sgd, peak rate 0.2 (warm-up from 0.02), cosine, seed 0",
        "steps: 12 an epoch",
        "updates: local",
        "precision: fp32 (as you set it)",
        "threads: 2 (2 cores, 1 worker)",
        "note 1: timed 3 convolutions",
        "note: validation: 10 % held out",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("settings", "workers", "batch"),
    [
        (["optim.accumulate=4"], 1, " = 32 a micro-batch × 4 accumulated"),
        (["exchange.workers=2"], 2, " = 64 a micro-batch × 2 workers, collective updates"),
        (
            ["exchange.workers=2", "optim.accumulate=2"],
            2,
            " = 32 a micro-batch × 2 accumulated × 2 workers",
        ),
        (["exchange.workers=2", "train.micro_batches=3"], 2, " = 42 or 43 a micro-batch × 3, shared by 2 workers"),
    ],
)
def test_a_batch_is_told_with_its_parts(settings: list[str], workers: int, batch: str) -> None:
    method = ["exchange.method=collective"] if workers > 1 else []
    start_up = described(*method, *settings, role=Role(rank=workers - 1, world=workers))
    assert start_up.essentials["batch"].startswith(f"128 samples a step{batch}")
    assert ("worker" in start_up.details) == (workers > 1)


def test_the_environment_says_whether_all_is_shown() -> None:
    shown = [is_verbose(environment) for environment in ({}, {"PHALANX_VERBOSE": "0"}, {"PHALANX_VERBOSE": "1"})]
    assert shown == [False, False, True]


def test_repeats_and_a_smaller_batch_are_told() -> None:
    start = replace(START, epoch_samples=5000, decisions={**START.decisions, "batch": "24 samples a step (because)"})
    config = resolve([parse_override("data.sampling=oversample")]).config
    lines = describe_start(start, config, Role(), folder="runs/digits", peak_lr=0.2).essentials
    assert lines["epoch"] == "5,000 samples of 1,442 images (data.sampling=oversample)"
    assert lines["batch"] == "24 samples a step (because)"
