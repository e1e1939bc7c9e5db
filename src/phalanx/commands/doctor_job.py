"""`phalanx doctor --job`: every socket that a running job listens at on this host, and who may talk to it."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.config.role import Role, role_from_data
from phalanx.errors import UserError
from phalanx.launch.agent import RECORD
from phalanx.launch.control import socket_path
from phalanx.launch.env.roles import role_from_env
from phalanx.launch.record import JobRecord, load_record
from phalanx.machine.listening import (
    ListeningSocket,
    environment_of_process,
    listening_sockets,
    parent_of,
    processes,
)
from phalanx.net.interfaces import is_loopback
from phalanx.net.listeners import HEARTBEAT, JOB_FOLDER, LANES, REACH, noted_listeners
from phalanx.observe.tables import print_rows, print_table

TITLES = ("process", "pid", "address", "what for", "who may talk to it")
_TORCH = "torch cannot authenticate it"


@dataclass(frozen=True)
class JobProcess:
    """A process of a job on this host."""

    pid: int
    name: str
    variables: Mapping[str, str]

    @property
    def folder(self) -> Path | None:
        """The job's folder on this host."""
        return Path(self.variables[JOB_FOLDER]) if self.variables.get(JOB_FOLDER) else None

    def role(self) -> Role | None:
        """From the file that its agent wrote, or from another launcher's variables."""
        try:
            if self.folder is not None:
                return role_from_data(json.loads((self.folder / f"{self.name}.json").read_text("utf-8"))["role"])
            return role_from_env(self.variables)
        except (OSError, ValueError, KeyError, TypeError, UserError):
            return None


def show_sockets(console: Console, which: str | None) -> None:
    """Print the sockets of the job of a run folder or a process; default: the only job on this host."""
    found = find_processes(which)
    sockets = listening_sockets(process.pid for process in found)
    by_pid = {process.pid: process for process in found}
    rows = [_row(by_pid[one.pid], one) for one in sorted(sockets, key=lambda one: (one.pid, one.endpoint))]
    run = next((process.variables["PHALANX_RUN"] for process in found if "PHALANX_RUN" in process.variables), "")
    about = {"host": platform.node(), "processes": str(len(found)), "listening sockets": str(len(rows))}
    print_rows(console, {**({"run": run} if run else {}), **about})
    print_table(console, TITLES, rows)
    elsewhere = _elsewhere(Path(run)) if run else []
    if elsewhere:
        hosts = ", ".join(sorted(set(elsewhere)))
        console.print(
            Text(f"the job also runs on {hosts}: `phalanx doctor --job` there shows its sockets"), soft_wrap=True
        )


def find_processes(which: str | None) -> list[JobProcess]:
    """The processes of a job on this host: its roles, its agent and its launcher."""
    if which is not None and which.isdecimal() and not Path(which).exists():
        return _of_process(int(which))
    jobs = _jobs()
    if which is not None:
        run = str(Path(which).absolute())
        record = load_record(Path(which)) if (Path(which) / RECORD).exists() else None
        chosen = [job for job, pids in jobs.items() if job == (record.id if record else "") or _run_of(pids) == run]
        if not chosen:
            raise _no_job(f"the job of {which} does not run on this host", f"no process here has {run} as its run")
        return _complete(jobs[chosen[0]], record)
    if not jobs:
        raise _no_job("no job runs on this host", "no process that this user may see belongs to one")
    if len(jobs) > 1:
        runs = ", ".join(sorted(_run_of(pids) for pids in jobs.values()))
        raise UserError(
            f"{len(jobs)} jobs run on this host", why=runs, remedy="name one of these folders, or a process"
        )
    return _complete(next(iter(jobs.values())), None)


def _no_job(what: str, why: str) -> UserError:
    remedy = "name the run folder or a process of a job that is running: phalanx doctor --job RUN"
    return UserError(what, why=why, remedy=remedy)


def _jobs() -> dict[str, list[int]]:
    """The processes of each job that our launchers started, by the job's id."""
    found: dict[str, list[int]] = {}
    for pid in processes():
        job = environment_of_process(pid).get("PHALANX_JOB")
        if job and pid != os.getpid():
            found.setdefault(job, []).append(pid)
    return found


def _run_of(pids: Sequence[int]) -> str:
    return environment_of_process(pids[0]).get("PHALANX_RUN", "")


def _of_process(pid: int) -> list[JobProcess]:
    """The job of a process; one that another launcher started is that process and those below it."""
    if pid not in processes():
        raise _no_job(f"there is no process {pid} on this host", "it has ended, or runs on another host")
    for pids in _jobs().values():
        if pid in pids or pid in {parent_of(each) for each in pids}:
            return _complete(pids, None)
    below = [pid]
    for each in processes():  # by number: a parent is often before its children
        if parent_of(each) in below:
            below.append(each)
    found = [JobProcess(each, _name(each), environment_of_process(each)) for each in below]
    if not any(process.role() for process in found):
        raise _no_job(f"process {pid} belongs to no job", "it and those below it have no launcher's variables")
    return found


def _complete(pids: Sequence[int], record: JobRecord | None) -> list[JobProcess]:
    """Roles, with the agent or launcher that started them."""
    roles = [JobProcess(pid, _name(pid), environment_of_process(pid)) for pid in pids]
    run = next((role.variables["PHALANX_RUN"] for role in roles if "PHALANX_RUN" in role.variables), "")
    if record is None and run and (Path(run) / RECORD).exists():
        record = load_record(Path(run))
    launcher = record.pid if record is not None and record.supervised else None
    above = {parent for pid in pids if (parent := parent_of(pid)) is not None and parent > 1 and parent not in pids}
    starters = sorted({*above, *([launcher] if launcher else [])})
    names = {pid: "launcher" if pid == launcher or launcher is None else "agent" for pid in starters}
    return [*(JobProcess(pid, names[pid], {}) for pid in starters), *roles]


def _name(pid: int) -> str:
    variables = environment_of_process(pid)
    if "PHALANX_NAME" in variables:
        return variables["PHALANX_NAME"]
    role = JobProcess(pid, "", variables).role()
    if role is not None:
        return role.name
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return "ended"


def _elsewhere(run: Path) -> list[str]:
    """The other hosts of a job, if this host has its record."""
    if not (run / RECORD).exists():
        return []
    record = load_record(run)
    return [role.host for role in record.roles if role.host not in ("localhost", platform.node())]


def _row(process: JobProcess, place: ListeningSocket) -> tuple[str, str, str, str, str]:
    purpose, who = _purpose(process, place)
    return process.name, str(process.pid), place.endpoint, purpose, who


def _purpose(process: JobProcess, place: ListeningSocket) -> tuple[str, str]:
    """(what for, who may talk to it)."""
    role = process.role()
    if place.path:
        return _unix_purpose(process, place), _who_opens(Path(place.path))
    noted = noted_listeners(process.folder, process.pid).get(place.endpoint) if process.folder else None
    if noted == HEARTBEAT:
        return noted, _with_key(place, role)
    if noted == LANES:
        return noted, f"{_reaching(place)} and has a token from the port beside it; AES-GCM"
    if noted == REACH:
        return noted, f"{_reaching(place)}; it only sends a random word"
    if process.name == "launcher":
        return "agents of a cluster (Ray, YARN)", "processes with the job's token (CURVE)"
    if role is not None and role.kind == "server" and _is_at(role.servers, role.rank, place):
        return "parameters and gradients", _with_key(place, role)
    if role is not None and role.kind == "data" and _is_at(role.data, role.rank, place):
        return "batches", _with_key(place, role)
    if role is not None and role.kind == "teacher" and _is_at(role.teachers, role.rank, place):
        return "teachers' logits", _with_key(place, role)
    if role is not None and str(place.port) == role.master.rpartition(":")[2]:
        proven = "; texts that decide settings need the job's key" if role.key else ""
        return "torch's store", f"{_reaching(place)}: {_TORCH}{proven}"
    if role is not None and role.kind == "trainer" and process.folder is None:
        return f"gloo (torch), or {HEARTBEAT}", f"{_reaching(place)}: torch cannot authenticate gloo"
    if role is not None and role.kind == "trainer":
        return "gloo (torch), or the user's own code", f"{_reaching(place)}: {_TORCH}"
    if process.name == "torchrun" or role is None:
        return f"of {process.name} itself", _reaching(place)
    return "not known: the user's own code?", _reaching(place)


def _unix_purpose(process: JobProcess, place: ListeningSocket) -> str:
    path = Path(place.path)
    if process.name == "launcher" and path.parent == socket_path("any").parent:
        return "phalanx status and phalanx stop"
    kinds = {"server": "parameters and gradients", "data": "batches", "teacher": "teachers' logits"}
    if process.folder is not None and path.parent == process.folder:
        return kinds.get(path.name.partition("-")[0], HEARTBEAT)
    return "not known: the user's own code?"


def _who_opens(path: Path) -> str:
    """Who can open a Unix socket, by the modes of the file and its folder."""
    try:
        folder, file = path.parent.stat().st_mode, path.stat().st_mode
    except OSError:
        return "processes of this machine"
    if not folder & 0o077:
        return f"this user only (its folder has mode {folder & 0o777:o})"
    return f"this user only (mode {file & 0o777:o})" if not file & 0o077 else "other users of this machine, too"


def _with_key(place: ListeningSocket, role: Role | None) -> str:
    return (
        "processes with the job's key" if role is not None and role.key else f"{_reaching(place)}: the job has no key"
    )


def _reaching(place: ListeningSocket) -> str:
    if place.everywhere:
        return "anyone who reaches this machine"
    return "any user of this machine" if is_loopback(place.host) else f"anyone who reaches {place.host}"


def _is_at(addresses: Sequence[str], rank: int, place: ListeningSocket) -> bool:
    return rank < len(addresses) and addresses[rank].rpartition(":")[2] == str(place.port)
