"""A real Grid Engine on the hosts of a lab: sge_qmaster on the first, sge_execd on all, one parallel environment.

    with hosts_up(2) as lab, sge_up(lab) as sge:
        sge.run(["qsub", "-pe", sge.PE, "2", "script"])

It works on copies of Debian's cell and spool, which each host sees in the usual places, and ends with its hosts.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.lab.hosts import Lab, require_tools
from tests.waiting import until

_TOOLS = {"sge_qmaster": "gridengine-master", "sge_execd": "gridengine-exec", "qsub": "gridengine-client"}
_ROOT = Path("/var/lib/gridengine")
_SPOOL = Path("/var/spool/gridengine")
_ONE_A_HOST = "slots 99|user_lists NONE|xuser_lists NONE|start_proc_args NONE|stop_proc_args NONE|allocation_rule 1|"
_ONE_A_HOST += "control_slaves TRUE|job_is_first_task FALSE|urgency_slots min|accounting_summary FALSE|qsort_args NONE"
_LISTS = ("user_lists", "xuser_lists", "projects", "xprojects")
_EXEC_HOST = ("load_scaling", "complex_values", *_LISTS, "usage_scaling", "report_variables")


@dataclass(frozen=True)
class Sge:
    """A cluster that is up. Commands run on the first host."""

    lab: Lab
    folder: Path
    PE: ClassVar[str] = "one-a-host"

    @property
    def environment(self) -> dict[str, str]:
        return {"SGE_ROOT": str(_ROOT), "SGE_ND": "1"}

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        everything = {**self.environment, **(env or {})}
        return self.lab.run(self.lab.names[0], argv, cwd=cwd, env=everything, timeout_s=timeout_s, check=check)

    def start(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        return self.lab.start(self.lab.names[0], argv, cwd=cwd, env={**self.environment, **(env or {})})

    def logs(self) -> str:
        return "\n".join(f"--- {path}\n{path.read_text()[-2000:]}" for path in self.folder.glob("log/*"))


@contextmanager
def sge_up(lab: Lab) -> Iterator[Sge]:
    """Grid Engine for as long as this is entered. Skips the test where it cannot be had."""
    require_tools(_TOOLS)
    sge = Sge(lab, lab.folder / "sge")
    _copy_cell(sge)
    _daemon(sge, lab.names[0], "sge_qmaster")
    until(lambda: sge.run(["qconf", "-sh"], check=False).returncode == 0, why=sge.logs)
    _configure(sge)
    for host in lab.names:
        _daemon(sge, host, "sge_execd")
    until(lambda: _all_up(sge), timeout_s=60, why=sge.logs)
    yield sge


def _all_up(sge: Sge) -> bool:
    lines = [line for line in sge.run(["qstat", "-f"]).stdout.splitlines() if "lx-amd64" in line]
    return len(lines) == len(sge.lab.names) and not any(line.split()[-1] in ("u", "au") for line in lines)


def _copy_cell(sge: Sge) -> None:
    (sge.folder / "log").mkdir(parents=True)
    shutil.copytree(_ROOT / "default", sge.folder / "default", symlinks=True)
    shutil.copytree(_SPOOL, sge.folder / "spool", symlinks=True)
    (sge.folder / "default/common/act_qmaster").write_text(sge.lab.names[0] + "\n")
    subprocess.run(["chown", "-R", "sgeadmin:sgeadmin", sge.folder / "default", sge.folder / "spool"], check=True)
    mounts = f"mkdir -p /run/gridengine; mount --bind {sge.folder}/default {_ROOT}/default; "
    mounts += f"mount --bind {sge.folder}/spool {_SPOOL}"
    for host in sge.lab.names:
        sge.lab.run(host, ["sh", "-c", mounts])


def _configure(sge: Sge) -> None:
    """What an administrator would type: root may run jobs, schedule at once, hosts, parallel environment, queue."""
    _change(sge, "conf", {"min_uid": "0", "min_gid": "0", "load_report_time": "00:00:02"})
    _change(sge, "sconf", {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"})
    sge.run(["qconf", "-as", sge.lab.names[0]])
    for host in sge.lab.names:
        sge.run(["qconf", "-ah", host], check=False)  # the first is one already
        _add(sge, "-Ae", [f"hostname {host}", *(f"{name} NONE" for name in _EXEC_HOST)])
    _add(sge, "-Ahgrp", ["group_name @allhosts", f"hostlist {' '.join(sge.lab.names)}"])
    _add(sge, "-Ap", [f"pe_name {sge.PE}", *_ONE_A_HOST.split("|")])
    queue = {"qname": "main.q", "hostlist": "@allhosts", "slots": "4", "pe_list": sge.PE, "shell": "/bin/bash"}
    queue |= {"shell_start_mode": "unix_behavior", "load_thresholds": "NONE", "notify": "00:00:20"}
    queue |= {"tmpdir": str(sge.lab.own)}  # a folder that hosts do not share
    _add(sge, "-Aq", _changed(sge.run(["qconf", "-sq"]).stdout, queue))


def _change(sge: Sge, what: str, values: Mapping[str, str]) -> None:
    path = sge.folder / ("global" if what == "conf" else what)  # the file's name says which configuration it is
    path.write_text("\n".join(_changed(sge.run(["qconf", f"-s{what}"]).stdout, values)) + "\n")
    sge.run(["qconf", f"-M{what}", str(path)])


def _changed(text: str, values: Mapping[str, str]) -> list[str]:
    """A configuration as qconf prints it, with other values."""
    lines = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    return [f"{line.split()[0]} {values[line.split()[0]]}" if line.split()[0] in values else line for line in lines]


def _add(sge: Sge, option: str, lines: Sequence[str]) -> None:
    path = sge.folder / option.strip("-")
    path.write_text("\n".join(lines) + "\n")
    sge.run(["qconf", option, str(path)])


def _daemon(sge: Sge, host: str, program: str) -> None:
    with (sge.folder / "log" / f"{program}-{host}").open("wb") as log:
        variables = [f"{name}={value}" for name, value in sge.environment.items()]
        command = sge.lab.command(host, ["env", *variables, program])
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
