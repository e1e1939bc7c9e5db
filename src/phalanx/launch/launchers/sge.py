"""Grid Engine and PBS, whose commands have the same names: batch scripts, qrsh as remote shell, qsub, qstat, qdel.

The PBS part follows its manuals. It is not tested against a real server.
"""

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.batch_script import LOG, WARNING_S, BatchJob, ScriptSyntax, clock
from phalanx.launch.launchers.scheduler import State, called
from phalanx.launch.remote_shell import HostCheck, ignore_signals

REQUEUE = 99  # the exit code that makes Grid Engine requeue a job


def request(job: BatchJob) -> list[str]:
    """The #$ options. The soft limit sends a warning signal, and -notify one before a deletion."""
    options = job.resources
    lines = [f"-N {_name(job.name)}", f"-o {_word(job.run / LOG)}", "-j y", "-S /bin/bash", "-V", "-r y", "-notify"]
    lines += [f"-pe {options.pe} {options.slots}"]
    if options.time_s:
        lines += [f"-l h_rt={clock(options.time_s)},s_rt={clock(options.time_s - WARNING_S)}"]
    lines += [f"-q {options.partition}"] if options.partition else []
    lines += [f"-P {options.account}"] if options.account else []
    lines += [f"-l gpu={options.gpus_per_node}"] if options.gpus_per_node else []
    return lines


def request_pbs(job: BatchJob) -> list[str]:
    """The #PBS options."""
    options = job.resources
    gpus = f":ngpus={options.gpus_per_node}" if options.gpus_per_node else ""
    lines = [f"-N {_name(job.name)}", f"-o {_word(job.run / LOG)}", "-j oe", "-S /bin/bash", "-V", "-r y"]
    lines += [f"-l select={options.nodes}:ncpus={options.roles_per_node}{gpus}"]
    lines += [f"-l walltime={clock(options.time_s)}"] if options.time_s else []
    lines += [f"-q {options.partition}"] if options.partition else []
    lines += [f"-A {options.account}"] if options.account else []
    return lines


def _name(name: str) -> str:
    """A valid job name: it begins with a letter and has no special characters."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain[:1].isalpha() else f"job-{plain}"


def _word(path: Path) -> str:
    """Quote a path for qsub, which splits a line like a shell."""
    return shlex.quote(str(path))


@dataclass(frozen=True)
class QrshShell:
    """qrsh -inherit starts a task on another host of the job. On this host the agent is a child process."""

    here: str

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        command = ignore_signals("USR1 USR2", remote)
        # A shell there evaluates what follows the host.
        return command if host.name == self.here else ["qrsh", "-inherit", host.name, shlex.join(command)]

    def check(self, host: Host) -> HostCheck:
        return HostCheck("qrsh", f"qhost -h {host.name}")


def allocation(environment: Environment = os.environ) -> tuple[list[Host], QrshShell]:
    """The hosts of this process's job, and the shell to them."""
    file = environment.get("PE_HOSTFILE")
    if not file:
        raise UserError(
            "--launcher qrsh needs an allocation",
            why="PE_HOSTFILE is not set, so this is not inside a job with a parallel environment",
            remedy="submit a job with --launcher sge --pe NAME",
        )
    lines = [line.split() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    hosts = [Host(words[0], slots=int(words[1])) for words in lines]
    return hosts, QrshShell(own_name(hosts))


def own_name(hosts: Sequence[Host]) -> str:
    """This host's name in the list, by its short name; the first, if none matches."""
    mine = socket.gethostname().partition(".")[0]
    return next((host.name for host in hosts if host.name.partition(".")[0] == mine), hosts[0].name)


class Sge:
    """qsub, qstat and qdel of Grid Engine."""

    name = "sge"
    syntax = ScriptSyntax("#$", "qsub", request)
    inside = "qrsh"

    def submit(self, script: str) -> str:
        return called(["qsub", "-terse", script], "submitting the job", "gridengine-client").strip().partition(".")[0]

    def state(self, job: str) -> State:
        done = subprocess.run(["qstat", "-u", "*"], capture_output=True, text=True)
        if done.returncode != 0:
            return State("unknown", done.stderr.strip())
        words = next((line.split() for line in done.stdout.splitlines() if line.split()[:1] == [job]), None)
        if words is None:
            return State("ended")
        letters = words[4]
        if "E" in letters:
            return State("waiting", f"{letters}: it failed to start, see qstat -j {job}")
        return State("waiting" if "q" in letters else "running", letters)

    def cancel(self, job: str) -> None:
        called(["qdel", job], "deleting the job")


class Pbs:
    """qsub, qstat and qdel of PBS. Inside a job we use ssh, since PBS's own remote shell has no standard input."""

    name = "pbs"
    syntax = ScriptSyntax("#PBS", "qsub", request_pbs, before='sort -u "$PBS_NODEFILE" >"$run/hosts"')
    inside = "ssh"

    def submit(self, script: str) -> str:
        return called(["qsub", script], "submitting the job").strip()

    def state(self, job: str) -> State:
        done = subprocess.run(["qstat", "-f", job], capture_output=True, text=True)
        found = re.search(r"job_state = (\w)", done.stdout)
        if found is None:
            return State("ended")
        letter = found[1]
        return State("waiting" if letter in "QHWT" else "ended" if letter in "FXC" else "running", letter)

    def cancel(self, job: str) -> None:
        called(["qdel", job], "deleting the job")
