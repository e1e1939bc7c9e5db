"""Batch jobs: a readable script whose last line is `phalanx launch` inside the allocation, for any scheduler.

Schedulers differ in how they spell a request (`Dialect`) and in their commands (`scheduler.py`), and in nothing else.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import UserError

WARNING_S = 60  # before the time limit, for a checkpoint
LOG = "logs/batch.log"  # in the run's folder: what the launcher inside the allocation prints


@dataclass(frozen=True)
class BatchOptions:
    """What a user asks of a scheduler; `directives` are lines of its own language, passed on as they are."""

    nodes: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    pe: str | None = None  # Grid Engine: the parallel environment
    directives: tuple[str, ...] = ()
    detach: bool = False


@dataclass(frozen=True)
class Resources:
    """The same, with what follows from the job: how many roles a node has, how many slots are needed."""

    nodes: int = 1
    roles_per_node: int = 1
    time_s: int | None = None
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    pe: str | None = None
    slots: int = 1  # of the parallel environment
    directives: tuple[str, ...] = ()
    node: str | None = None  # one that must be among them


@dataclass(frozen=True)
class BatchJob:
    """A script to be: `launch` is the command inside the allocation, `train` the words after its `--`."""

    name: str
    run: Path
    cwd: Path
    command: str  # what the user typed
    launch: tuple[str, ...]
    train: tuple[str, ...]
    resources: Resources
    resume: tuple[str, ...] = ()  # further words where a job that is queued again goes on


@dataclass(frozen=True)
class Dialect:
    """How a scheduler spells a request."""

    marker: str  # what its lines in a script begin with
    submit: str
    request: Callable[[BatchJob], list[str]]
    before: str = ""  # lines of shell before the command


def script(dialect: Dialect, job: BatchJob, path: Path) -> str:
    """The whole script. A run that has checkpoints goes on from the last, so a job that is queued again resumes."""
    asked = [f"{dialect.marker} {line}" for line in [*dialect.request(job), *job.resources.directives]]
    run, train = shlex.quote(str(job.run)), shlex.join(job.train)
    lines = [
        "#!/bin/bash",
        *asked,
        "",
        f"# Written by: {_one_line(job.command)}",
        f"# Submit it again with: {dialect.submit} {shlex.quote(str(path))}",
        "",
        f"cd {shlex.quote(str(job.cwd))} || exit",
        f"export PHALANX_COMMAND={shlex.quote(job.command)}",
        f"run={run}",
        'if [ -n "$(ls -d "$run"/checkpoints/step-* 2>/dev/null)" ]; then',
        f"  train=({' '.join(['--resume', chr(34) + '$run' + chr(34), *job.resume])})"
        "  # queued again: go on from the last checkpoint",
        "else",
        '  [ -e "$run/events.jsonl" ] && mv "$run/events.jsonl" "$run/events.before-$(date +%s).jsonl"',
        f"  train=({train})",
        "fi",
        *([dialect.before] if dialect.before else []),
        "# Signals reach this very process: it saves a checkpoint, and has the job queued again if more is to do.",
        f'exec {shlex.join(job.launch)} -- train "${{train[@]}}"',
    ]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def parse_time(text: str) -> int:
    """Seconds of a time limit as Slurm writes it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise UserError(
            f"--time {text!r} is not a time limit",
            why="it has another form than the known ones",
            remedy="write minutes (90), H:M:S (1:30:00) or D-H:M:S (2-12:00:00)",
        )
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    total = (int(days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds
    if total <= WARNING_S:
        raise UserError(
            f"--time {text} is too short",
            why=f"a checkpoint is saved {WARNING_S} s before the end",
            remedy="ask for several minutes",
        )
    return total


def clock(seconds: int) -> str:
    """H:M:S, which every scheduler reads."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def share(count: int, nodes: int) -> int:
    """How many of so many a node gets at most."""
    return -(-count // nodes)


def refuse_lines(texts: Sequence[str], option: str) -> None:
    """What goes into a script's directives stays on its line."""
    for text in texts:
        if "\n" in text or "\r" in text:
            raise UserError(
                f"{option} {text!r} has a line break",
                why="it becomes one line of the script",
                remedy=f"give {option} once for each line",
            )
