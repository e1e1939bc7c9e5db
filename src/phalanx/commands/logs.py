"""`phalanx logs`: the output of a job's roles, also while it runs."""

import contextlib
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, TextIO

from phalanx.config.resolve import flatten
from phalanx.errors import UserError, nearest
from phalanx.launch.agent import RECORD
from phalanx.launch.launchers.kubernetes_job import PREFIX, KubernetesJob, role_logs
from phalanx.launch.launchers.kubernetes_state import JobState, PodState
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.launch.record import load_record
from phalanx.runs.folder import LOGS, RunFolder

_POLL_S = 0.2


def print_logs(run: Path, role: str | None, *, follow: bool, out: TextIO) -> None:
    """Print the log of one role, or all logs with the role's name before each line."""
    submitted = submitted_job(run)
    if submitted is not None and (job := submitted.in_cluster) is not None:
        state = job.look(events=False)
        if state.pods or not (run / LOGS).is_dir():
            _print_pods(job, state, role, follow=follow, out=out)
            return
    folder = logs_of(run)
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if role is None and not follow and not paths:
        raise UserError(f"{run} has no logs", why=f"there is nothing in {folder}", remedy="name a run folder")
    if role is not None and role not in paths:
        known = [record.name for record in load_record(run).roles] if not paths else list(paths)
        raise UserError(
            f"there is no log of {role!r} in {folder}",
            why="no such role has written a log",
            remedy=nearest(role, known),
        )
    _print(run, folder, role, follow, out)


def _print_pods(job: KubernetesJob, state: JobState, role: str | None, *, follow: bool, out: TextIO) -> None:
    """What kubectl prints of the pods; of several, with the role before each line."""
    pods = role_logs(state, role)
    readers = [
        subprocess.Popen(job.log_command(pod, follow=follow), stdout=subprocess.PIPE, text=True, errors="replace")
        for pod in pods
    ]

    failures: list[OSError] = []

    def copy(pod: PodState, lines: IO[str]) -> None:
        try:
            with lines:  # kubectl cannot write on, and ends
                for line in lines:
                    out.write(line if role else f"{pod.role} | {line}")
                    out.flush()
        except OSError as error:  # nobody reads any more: `phalanx logs … | head`
            failures.append(error)

    threads = [
        threading.Thread(target=copy, args=(pod, reader.stdout)) for pod, reader in zip(pods, readers, strict=True)
    ]
    for thread in threads:
        thread.start()
        if not follow:
            thread.join()  # one log after the other
    for thread in threads:
        thread.join()
    unread = [pod for pod, reader in zip(pods, readers, strict=True) if reader.wait() != 0]
    if failures:
        raise failures[0]
    if unread:
        raise UserError(
            f"the log of {unread[0].where} cannot be read to its end",
            why="kubectl's message is above; a node that does not answer gives no logs",
            remedy=f"phalanx get {PREFIX}{job}: with --volume-claim every role's log is on the volume, too",
        )


def logs_of(run: Path) -> Path:
    """The folder of a run's logs: from job.json, or without one from the settings."""
    if (run / RECORD).exists():
        return Path(load_record(run).logs or run / LOGS)
    with contextlib.suppress(UserError):
        folder = flatten(RunFolder(run).layer().values).get("train.log_dir")
        return Path(str(folder)) if folder else run / LOGS
    return run / LOGS


def _print(run: Path, folder: Path, role: str | None, follow: bool, out: TextIO) -> None:
    opened: dict[str, IO[str]] = {}
    partial: dict[str, str] = {}  # unfinished last lines
    try:
        while True:
            running = follow and (run / RECORD).exists() and load_record(run).supervised
            for path in sorted(folder.glob(f"{role or '*'}.log")):
                if path.stem not in opened:
                    opened[path.stem] = path.open(encoding="utf-8", errors="replace", newline="\n")
                *lines, partial[path.stem] = (partial.get(path.stem, "") + opened[path.stem].read()).split("\n")
                if partial[path.stem] and not running:
                    lines.append(partial[path.stem])
                prefix = "" if role else f"{path.stem} | "
                out.writelines(f"{prefix}{line}\n" for line in lines)
            out.flush()
            if not running:
                return
            time.sleep(_POLL_S)
    finally:
        for file in opened.values():
            file.close()
