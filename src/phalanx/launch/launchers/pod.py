"""`python -m phalanx.launch.launchers.pod RUN -- train …`: what a pod of a Kubernetes job runs first.

It waits until all pods of the job have an address, so that none begins without the others; and where the Job starts its
pods again, it goes on from the newest checkpoint. Then it becomes `phalanx train …`.
"""

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from phalanx.atomic import make_folder
from phalanx.errors import UserError
from phalanx.net.waiting import Patience
from phalanx.roles.process import run_process
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.folder import RunFolder, write_run_file

JOB, TIMEOUT = "PHALANX_JOB", "PHALANX_START_TIMEOUT_S"
OWNER = "job.k8s"  # in the run folder: the value of JOB of the job that made it
_RESOLVE_S = 0.5  # between looks


def main() -> int:
    run, words = Path(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :]
    index = int(os.environ["JOB_COMPLETION_INDEX"])
    await_pods(pod_names(os.environ), float(os.environ[TIMEOUT]))
    words = words if "--resume" in words else start_or_resume(run, words, os.environ[JOB], first=index == 0)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "phalanx", *words])


def pod_names(environment: Mapping[str, str]) -> list[str]:
    """The names of all pods, trainers first."""
    service = environment["MASTER_ADDR"].partition(".")[2]
    servers = [address for address in environment.get("PHALANX_SERVERS", "").split(",") if address]
    return [f"{service}-{index}.{service}" for index in range(int(environment["PHALANX_WORLD"]) + len(servers))]


def await_pods(names: Sequence[str], timeout_s: float) -> None:
    """Wait until all names resolve: a pod has one as soon as it has been placed and its image is there."""
    waiting, missing = Patience(timeout_s), list(names)
    while missing := [name for name in missing if not _resolves(name)]:
        shown = ", ".join(name.partition(".")[0] for name in missing[:4]) + (" …" if len(missing) > 4 else "")
        if waiting.over:
            raise UserError(
                f"{len(missing)} of {len(names)} pods have not started within {timeout_s:g} s: {shown}",
                why="the cluster has no room for them, or cannot start them; the others do not begin alone",
                remedy="kubectl describe pod says why; exchange.timeout_s is how long pods wait for one another",
            )
        if waiting.due:
            waiting.report(f"waiting for {len(missing)} of {len(names)} pods: {shown}")
        time.sleep(_RESOLVE_S)


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return False
    return True


def start_or_resume(run: Path, words: Sequence[str], job: str, *, first: bool) -> list[str]:
    """The words of this start: a job that has saved goes on. A run of another job is not touched."""
    try:
        owner = (run / OWNER).read_text(encoding="utf-8").strip()
    except OSError:
        owner = ""
    begun = (run / EVENTS_FILE).exists() or checkpoint.latest_path(RunFolder(run).checkpoints) is not None
    if begun and owner != job:
        raise UserError(
            f"{run} holds a run already",
            why="another job made it, and a folder holds one run",
            remedy=f"choose another --out, or continue it: phalanx launch --launcher k8s … -- train --resume {run}",
        )
    if checkpoint.latest_path(RunFolder(run).checkpoints) is not None:
        return ["train", "--resume", str(run), *(["--accept-code", "run"] if (run / "code").is_dir() else [])]
    if first:
        _make(run)
        if begun:  # a start that was lost before its first checkpoint
            (run / EVENTS_FILE).rename(run / f"events.before-{time.time():.0f}.jsonl")
        write_run_file(run / OWNER, f"{job}\n")
    return list(words)


def _make(run: Path) -> None:
    try:
        make_folder(run)
    except OSError as error:
        raise UserError(
            f"the run folder {run} cannot be created",
            why=f"{error.strerror}, for user {os.getuid()}; on a volume its owner decides",
            remedy="--run-as UID: a user who may write to the volume; or another --out",
        ) from error


if __name__ == "__main__":
    run_process(main)
