"""RUN/job.json: the supervisor of a job, and the host and state of each role. `status`, `stop` and `logs` read it."""

import asyncio
import json
import os
import platform
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.launch.agent import RECORD
from phalanx.machine.processes import start_time
from phalanx.runs.fold_paths import refuse_cross_validation, run_files
from phalanx.runs.folder import RUNS, write_run_file

STOPPED_BY_USER = "phalanx stop"  # the cause of a job that a user stopped


@dataclass
class RoleRecord:
    """One role. `heard` is the time of its last output, or of its host's last answer (seconds since 1970)."""

    name: str
    host: str
    state: str = "waiting"  # then starting, running, ended, lost
    pid: int | None = None
    code: int | None = None
    step: int | None = None
    samples_per_s: float | None = None  # a trainer's own
    times: dict[str, float] | None = None  # of a trainer: data, compute, exchange, update, in seconds a step
    heard: float | None = None
    starts: int = 0


@dataclass
class JobRecord:
    """The job. Its supervisor is identified by pid and start time, since pids are used again."""

    id: str
    command: str
    launcher: str
    run: str
    socket: str | None = None
    state: str = "starting"  # then running, ended
    exit_code: int | None = None
    cause: str = ""
    logs: str = ""  # the folder of the roles' logs, if not in the run folder
    run_on: str = ""  # HOST:FOLDER, if the run folder is on another host
    began: float = field(default_factory=time.time)
    ended: float | None = None
    host: str = field(default_factory=platform.node)
    pid: int = field(default_factory=os.getpid)
    pid_start: int | None = field(default_factory=lambda: start_time(os.getpid()))
    roles: list[RoleRecord] = field(default_factory=list)
    # `t`, what happened and followed in words, and whether the launcher has told it: else the first trainer does.
    faults: list[dict[str, Any]] = field(default_factory=list)
    hosts: list[dict[str, Any]] = field(default_factory=list)  # `host`, `t`, `cpu`, `memory`, `memory_total`

    def add_fault(self, text: str, *, told: bool = True) -> None:
        """Keep what happened to a role. Of very many, the latest."""
        self.faults = [*self.faults[-99:], {"t": time.time(), "text": text, "told": told}]

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def supervised(self) -> bool:
        """Whether its supervisor is alive, as far as this host can tell."""
        if self.state == "ended" or self.host != platform.node():
            return False
        return start_time(self.pid) == self.pid_start if self.pid_start is not None else _exists(self.pid)


class RecordFile:
    """RUN/job.json of a record. Writing waits for the disk, which a supervisor must not: its agents would miss it."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._texts = self._written = 0
        self._writing = threading.Lock()

    def write(self) -> None:
        self._put(*self._text())

    async def write_aside(self) -> None:
        """Write the record as it is now, in a thread."""
        await asyncio.to_thread(self._put, *self._text())

    def _text(self) -> tuple[int, str]:
        self._texts += 1
        return self._texts, json.dumps(self._record.to_data(), indent=1) + "\n"

    def _put(self, number: int, text: str) -> None:
        with self._writing:
            if number > self._written:  # a thread may come late
                write_run_file(Path(self._record.run) / RECORD, text)
                self._written = number


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def record_from_data(data: dict[str, Any]) -> JobRecord:
    return JobRecord(**{**data, "roles": [RoleRecord(**role) for role in data["roles"]]})


def load_record(run: Path) -> JobRecord:
    """The record of a run folder."""
    path = run / RECORD
    try:
        return record_from_data(read_json(path.read_bytes()))
    except OSError as error:
        refuse_cross_validation(run)
        raise UserError(
            f"{run} has no job",
            why=f"there is no {RECORD} in it" if run.is_dir() else "there is no such folder",
            remedy="name the folder of a run that phalanx launch started, or that has several workers",
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read", why=str(error), remedy="the file was edited or damaged") from error


def find_record(run: Path | None, *, running: bool) -> JobRecord:
    """The job of a run folder. Default: the latest under runs/, or with `running` the only one that runs."""
    if run is not None:
        return load_record(run)
    paths = sorted(run_files(RUNS, RECORD), key=lambda path: path.stat().st_mtime, reverse=True)
    found = [load_record(path.parent) for path in paths]
    if running:
        found = [record for record in found if record.supervised]
    if not found:
        raise UserError(
            "there is no job here" + (" that is running" if running else ""),
            why=f"no {RUNS}/*/{RECORD} in {Path.cwd()}" + (" belongs to a live launcher" if running else ""),
            remedy="name the run folder",
        )
    if running and len(found) > 1:
        raise UserError(
            f"{len(found)} jobs are running here",
            why=", ".join(record.run for record in found),
            remedy="name one of these folders",
        )
    return found[0]
