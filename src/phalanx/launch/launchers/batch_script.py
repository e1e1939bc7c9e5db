"""Batch scripts: readable, for any scheduler. The last line is `phalanx launch` inside the allocation.

Schedulers differ in their script options (`ScriptSyntax`) and their commands (`scheduler.py`) only.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import UserError

WARNING_S = 60  # before the time limit, for a checkpoint
LOG = "logs/batch.log"  # in the run folder: output of the launcher inside the allocation


@dataclass(frozen=True)
class BatchOptions:
    """The user's options for a scheduler; `directives` go into the script unchanged."""

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
    """The resources of a job, as the script requests them."""

    nodes: int = 1
    roles_per_node: int = 1
    time_s: int | None = None
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    pe: str | None = None
    slots: int = 1  # of the parallel environment
    directives: tuple[str, ...] = ()
    node: str | None = None  # a host that must be among them


@dataclass(frozen=True)
class BatchJob:
    """The contents of a script: `launch` is the command in the allocation, `train` its arguments after `--`."""

    name: str
    run: Path
    cwd: Path
    command: str  # the user's command line
    launch: tuple[str, ...]
    train: tuple[str, ...]
    resources: Resources
    resume: tuple[str, ...] = ()  # further words where a job that is queued again goes on


@dataclass(frozen=True)
class ScriptSyntax:
    """How a scheduler writes options in scripts."""

    marker: str  # the prefix of option lines
    submit: str
    request: Callable[[BatchJob], list[str]]
    before: str = ""  # shell lines before the command


def script(syntax: ScriptSyntax, job: BatchJob, path: Path) -> str:
    """The whole script. A run with checkpoints resumes from the last, so a requeued job continues."""
    options = [f"{syntax.marker} {line}" for line in [*syntax.request(job), *job.resources.directives]]
    run, train = shlex.quote(str(job.run)), shlex.join(job.train)
    lines = [
        "#!/bin/bash",
        *options,
        "",
        f"# Written by: {_one_line(job.command)}",
        f"# Submit it again with: {syntax.submit} {shlex.quote(str(path))}",
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
        *([syntax.before] if syntax.before else []),
        "# Signals reach this process: it saves a checkpoint, and requeues the job if it is not finished.",
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
            why="it has none of the known forms",
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
            remedy="request several minutes",
        )
    return total


def clock(seconds: int) -> str:
    """H:M:S, the format of all schedulers."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def share(count: int, nodes: int) -> int:
    """The most that one node gets of `count`."""
    return -(-count // nodes)


def refuse_lines(texts: Sequence[str], option: str) -> None:
    """Refuse line breaks in script options."""
    for text in texts:
        if "\n" in text or "\r" in text:
            raise UserError(
                f"{option} {text!r} has a line break",
                why="each option is one line of the script",
                remedy=f"give {option} once for each line",
            )
