"""A team of benchmark processes that work together like a job's roles: started and ended together."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.config.role import Role, environment_of
from phalanx.net.interfaces import free_port

HERE = "127.0.0.1"
Progress = Callable[[float], None]


class TeamFailed(Exception):
    """A process ended before its result. The message has its last lines of output."""


def run_team(module: str, job: dict[str, Any], *, workers: int, servers: int, tcp: bool, progress: Progress) -> Any:
    """Run `python -m MODULE JOB` as `workers` trainers and `servers` servers; returns each trainer's result, by rank.

    A trainer prints JSON lines: {"done": share} now and then, and {"result": …} at its end.
    """
    with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
        addresses = [f"ipc://{Path(folder) / f'server-{number}'}" for number in range(servers)]
        if tcp:
            addresses = [f"tcp://{HERE}:{free_port(HERE)}" for _ in addresses]
        base = Role(master=f"{HERE}:{free_port(HERE)}", servers=tuple(addresses), key=secrets.token_hex(16))
        roles = [replace(base, kind="server", rank=rank, world=servers) for rank in range(servers)]
        roles += [
            replace(base, rank=rank, world=workers, local_rank=rank, local_world=workers) for rank in range(workers)
        ]
        with _started(module, job, roles, Path(folder)) as processes:
            return [_result(process, Path(folder), progress) for process in processes[servers:]]


@contextmanager
def _started(module: str, job: dict[str, Any], roles: list[Role], folder: Path) -> Iterator[list[Any]]:
    processes: list[subprocess.Popen[str]] = []
    try:
        for role in roles:
            with (folder / f"{role.name}.err").open("w") as complaints:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", module, json.dumps(job)],
                        env={**os.environ, **environment_of(role), "PHALANX_LIFELINE": "stdin"},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE if role.kind == "trainer" else subprocess.DEVNULL,
                        stderr=complaints,
                        text=True,
                        start_new_session=True,
                    )
                )
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _result(process: "subprocess.Popen[str]", folder: Path, progress: Progress) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:  # output of a library
            continue
        if "result" in message:
            return message["result"]
        progress(message["done"])
    words = [line for file in sorted(folder.glob("*.err")) for line in file.read_text(errors="replace").splitlines()]
    raise TeamFailed(" / ".join(words[-3:]) or f"it ended with code {process.wait()}")
