"""`--dry-run`: shows the placement, all commands and all files, and starts nothing."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from phalanx.launch.agent import RECORD
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.messages import Argument
from phalanx.launch.multi_host import remote_command, shell_to, synced
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import RemoteShell, SshShell
from phalanx.launch.run_files import SMALL
from phalanx.observe.tables import print_line, print_table
from phalanx.runs.folder import RUNS, log_path


def show_plan(plan: LaunchPlan, hosts: Sequence[Host], shell: RemoteShell | None, console: Console) -> int:
    """Show what a launch would do. `shell` is None if the agent runs inside the launcher."""
    request = plan.request
    name = f"{request.resolved.config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = request.resume.path if request.resume else request.out or RUNS / name
    job = plan.job(run)
    placements = replace(plan, hosts=tuple(hosts)).placements()
    rows = [
        [placement.name, hosts[placement.host].name, f"{placement.local_rank} of {placement.local_world}"]
        for placement in placements
    ]
    print_table(console, ["role", "host", "local rank"], rows)
    if len(hosts) > 1 and any(placement.kind == "evaluator" for placement in placements) and plan.evaluator_on is None:
        print_line(console, "evaluator-0 needs the run folder: if the hosts share no disk, it runs on trainer-0's host")
    for host in hosts if shell is not None else []:
        assert shell is not None
        sent, to_host = synced(replace(plan.sync, run=run) if plan.sync else None, host), shell_to(host, shell)
        if sent is not None and isinstance(shell, SshShell):
            print_line(console, f"here: {shlex.join(sent.command(shell, host))}")
        print_line(console, f"here: {shlex.join(to_host.command(host, remote_command(plan.python, sent)))}")
        if plan.setup:
            print_line(console, f"{host.name}: /bin/sh -c {shlex.quote(plan.setup)}")
    for placement in placements:
        print_line(console, f"{hosts[placement.host].name}: {placement.name}: {_text(job.argv)}")
    for path in _files(job, [placement.name for placement in placements]):
        print_line(console, f"would write here: {path}")
    if shell is not None:
        first = next(placement for placement in placements if placement.name == "trainer-0")
        print_line(console, f"would write on {hosts[first.host].name}: {job.run}/checkpoints/, events.jsonl …")
    return 0


def _text(argv: Sequence[Argument]) -> str:
    """A command, with each host's own values in angle brackets."""
    return " ".join(shlex.quote(word) if isinstance(word, str) else f"<{word['local']}>" for word in argv)


def _files(job: Job, roles: Sequence[str]) -> list[Path]:
    return [job.run / RECORD, *(log_path(job.logs, role) for role in roles), *(job.run / name for name in SMALL)]
