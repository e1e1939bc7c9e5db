"""local: all roles of a job as processes of this machine, which start, stop and fail together."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from phalanx.checkpoint import FOLDER, latest_path
from phalanx.errors import EXIT_OURS, EXIT_USER
from phalanx.launch.role import Role, environment_of
from phalanx.signals import StopRequest

GRACE_S = 10.0  # between asking a role to end and ending it
RESTARTS = 3  # of trainers of a forgiving job


@dataclass
class Running:
    """A role that was started, and the file that holds what it prints."""

    role: Role
    process: subprocess.Popen[bytes]
    log: Path


def plan_roles(workers: int, servers: int, run: Path) -> list[Role]:
    """The roles of a job on this machine: servers first, so that they listen when trainers look for them."""
    key = secrets.token_hex(32)
    sockets = Path(tempfile.mkdtemp(prefix="phalanx-")) if servers else None
    addresses = tuple(f"ipc://{sockets}/server-{number}" for number in range(servers))
    base = Role(master=f"127.0.0.1:{free_port()}", servers=addresses, key=key, run=run)
    made = [replace(base, kind="server", rank=rank, world=servers, local_world=servers) for rank in range(servers)]
    made += [
        replace(base, kind="trainer", rank=rank, world=workers, local_rank=rank, local_world=workers)
        for rank in range(workers)
    ]
    return made


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(roles: Sequence[Role], arguments: Sequence[str], console: Console, *, forgiving: bool = False) -> int:
    """Start every role with the same command line, and see all of them to their end. Returns the job's exit code.

    `forgiving` jobs (async, ssp) go on without a trainer that was lost, while it is started anew and joins again. The
    first trainer is not forgiven: it keeps the run's folder.
    """
    with StopRequest() as stop:
        running = [_start(role, arguments) for role in roles]
        try:
            return _watch(running, arguments, stop, console, RESTARTS if forgiving else 0)
        finally:
            _end(running)
            _remove_sockets(roles)


def _start(role: Role, arguments: Sequence[str]) -> Running:
    """One process. Its standard input is a lifeline: when this process dies, however it dies, the pipe ends."""
    assert role.run is not None
    folder = role.run / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{role.name}.log"
    first_trainer = role.kind == "trainer" and role.rank == 0
    output: IO[bytes] | None = None if first_trainer else log.open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "phalanx", "train", *arguments],
        env={**os.environ, **environment_of(role), "PHALANX_LIFELINE": "stdin"},
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=None if first_trainer else subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C reaches this process alone, which passes it on once
    )
    if output is not None:
        output.close()
    return Running(role, process, log)


def _watch(running: list[Running], arguments: Sequence[str], stop: StopRequest, console: Console, restarts: int) -> int:
    told = False
    while True:
        if stop and not told:
            told = True
            for each in running:
                if each.role.kind == "trainer":
                    _signal(each, stop.received or signal.SIGTERM)
        failed = [each for each in running if each.process.poll() not in (None, 0, 130, 143)]
        if failed:
            lost = failed[0]
            if restarts == 0 or stop or lost.role.kind == "server" or lost.role.rank == 0:
                return _report(lost, console)
            restarts -= 1
            console.print(Text(f"{lost.role.name} {_how(lost)}; the others go on, and it is started anew"))
            running[running.index(lost)] = _start(lost.role, arguments)
        trainers = [each for each in running if each.role.kind == "trainer"]
        if all(each.process.poll() is not None for each in trainers):
            return max(each.process.returncode for each in trainers)
        time.sleep(0.05)


def _how(ended: Running) -> str:
    code = ended.process.returncode
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _report(failed: Running, console: Console) -> int:
    """Name who failed first. Trainer 0 has said why on the screen; the others' last lines are in their logs."""
    code = failed.process.returncode
    run = failed.role.run
    kept = run is not None and latest_path(run / FOLDER)
    way_on = f"; saved checkpoints are valid, go on with phalanx train --resume {run}" if kept else ""
    console.print(Text(f"{failed.role.name} {_how(failed)}; the job ends{way_on}"), soft_wrap=True)
    if failed.log.exists():
        console.print(Text(f"its log, {failed.log}, ends:"))
        for line in failed.log.read_text(errors="replace").splitlines()[-8:]:
            console.print(Text(f"  {line}"), soft_wrap=True)
    return EXIT_USER if code == EXIT_USER else EXIT_OURS


def _end(running: list[Running]) -> None:
    """TERM, a grace, KILL: nothing of the job outlives this."""
    for each in running:
        if each.process.poll() is None:
            _signal(each, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for each in running:
        try:
            each.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(each, signal.SIGKILL)
            each.process.wait()


def _signal(each: Running, number: int) -> None:
    try:
        os.killpg(each.process.pid, number)
    except ProcessLookupError:
        return


def _remove_sockets(roles: Sequence[Role]) -> None:
    for address in roles[0].servers:
        path = Path(address.removeprefix("ipc://"))
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
