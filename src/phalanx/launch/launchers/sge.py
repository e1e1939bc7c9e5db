"""Grid Engine, and PBS, whose commands have the same names: what scripts ask for, qrsh as carrier, qsub, qstat, qdel.

PBS is written from its manuals and has not been run against a real server.
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
from phalanx.launch.launchers.batch_script import LOG, WARNING_S, BatchJob, Dialect, clock
from phalanx.launch.launchers.scheduler import State, called
from phalanx.launch.remote_shell import Way, deaf_to

QUEUE_AGAIN = 99  # the exit code by which a job asks Grid Engine to be queued again


def request(job: BatchJob) -> list[str]:
    """The lines after #$. The soft limit warns the job, and -notify does so before it is deleted."""
    asked = job.resources
    lines = [f"-N {_name(job.name)}", f"-o {_word(job.run / LOG)}", "-j y", "-S /bin/bash", "-V", "-r y", "-notify"]
    lines += [f"-pe {asked.pe} {asked.slots}"]
    if asked.time_s:
        lines += [f"-l h_rt={clock(asked.time_s)},s_rt={clock(asked.time_s - WARNING_S)}"]
    lines += [f"-q {asked.partition}"] if asked.partition else []
    lines += [f"-P {asked.account}"] if asked.account else []
    lines += [f"-l gpu={asked.gpus_per_node}"] if asked.gpus_per_node else []
    return lines


def request_pbs(job: BatchJob) -> list[str]:
    """The lines after #PBS."""
    asked = job.resources
    gpus = f":ngpus={asked.gpus_per_node}" if asked.gpus_per_node else ""
    lines = [f"-N {_name(job.name)}", f"-o {_word(job.run / LOG)}", "-j oe", "-S /bin/bash", "-V", "-r y"]
    lines += [f"-l select={asked.nodes}:ncpus={asked.roles_per_node}{gpus}"]
    lines += [f"-l walltime={clock(asked.time_s)}"] if asked.time_s else []
    lines += [f"-q {asked.partition}"] if asked.partition else []
    lines += [f"-A {asked.account}"] if asked.account else []
    return lines


def _name(name: str) -> str:
    """Names of jobs begin with a letter and have no special characters."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain[:1].isalpha() else f"job-{plain}"


def _word(path: Path) -> str:
    """qsub splits a line as it would its own command line, which a shell has split."""
    return shlex.quote(str(path))


@dataclass(frozen=True)
class QrshShell:
    """qrsh -inherit starts a task on another host of the job; on this one the agent is a child like any other."""

    here: str

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        deaf = deaf_to("USR1 USR2", remote)
        # What follows the host is evaluated by a shell there.
        return deaf if host.name == self.here else ["qrsh", "-inherit", host.name, shlex.join(deaf)]

    def way(self, host: Host) -> Way:
        return Way("qrsh", f"qhost -h {host.name}")


def allocation(environment: Environment = os.environ) -> tuple[list[Host], QrshShell]:
    """The hosts of the job that this process is in, the own one first, and the way to them."""
    file = environment.get("PE_HOSTFILE")
    if not file:
        raise UserError(
            "--launcher qrsh needs an allocation",
            why="PE_HOSTFILE is not set, so this is not inside a job with a parallel environment",
            remedy="--launcher sge --pe NAME submits a job",
        )
    lines = [line.split() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    hosts = [Host(words[0], slots=int(words[1])) for words in lines]
    return hosts, QrshShell(own_name(hosts))


def own_name(hosts: Sequence[Host]) -> str:
    """Which of the hosts this is: the one with its name, in full or short; the first, where none has."""
    mine = socket.gethostname().partition(".")[0]
    return next((host.name for host in hosts if host.name.partition(".")[0] == mine), hosts[0].name)


class Sge:
    """qsub, qstat and qdel of Grid Engine."""

    name = "sge"
    dialect = Dialect("#$", "qsub", request)
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
    """qsub, qstat and qdel of PBS. Inside, hosts are reached by ssh, for its own ways have no standard input."""

    name = "pbs"
    dialect = Dialect("#PBS", "qsub", request_pbs, before='sort -u "$PBS_NODEFILE" >"$run/hosts"')
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
