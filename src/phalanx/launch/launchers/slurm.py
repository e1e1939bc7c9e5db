"""Slurm: batch scripts, the hosts of an allocation, srun as remote shell, and requeueing."""

import os
import signal
import subprocess
from collections.abc import Sequence

from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.batch_script import LOG, WARNING_S, BatchJob, ScriptSyntax, clock
from phalanx.launch.launchers.nodelist import expand
from phalanx.launch.launchers.scheduler import State, called
from phalanx.launch.remote_shell import HostCheck, ignore_signals

STOP_WITH = signal.SIGINT  # stops trainers: they ignore SIGTERM, which Slurm sends to all processes
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "RESIZING", "SIGNALING")


def request(job: BatchJob) -> list[str]:
    """The #SBATCH options. Only the batch process, our launcher, gets the signal before the time limit."""
    options = job.resources
    values = {
        "job-name": job.name,
        "output": _file_name(str(job.run / LOG)),
        "open-mode": "append",
        "nodes": options.nodes,
        "nodelist": options.node,
        "ntasks-per-node": options.roles_per_node,
        "gpus-per-node": options.gpus_per_node,
        "partition": options.partition,
        "account": options.account,
        "time": clock(options.time_s) if options.time_s else None,
        "signal": f"B:USR1@{WARNING_S}",
    }
    return [*(f"--{name}={value}" for name, value in values.items() if value is not None), "--requeue"]


def _file_name(path: str) -> str:
    """Quote a path for sbatch, which splits lines at spaces and replaces %j in file names."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if " " in path or escaped != path else path


class SrunShell:
    """srun: a step of one task on one host of the allocation, with all resources of the job there.

    Slurm ends a job by SIGTERM to every process. Roles ignore it: without its parameter servers a trainer could not
    save, and a trainer that gets a second signal stops without saving.
    """

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--overlap", "--cpu-bind=none", "--quiet"]
        return ["srun", *one, *ignore_signals("TERM", remote)]

    def check(self, host: Host) -> HostCheck:
        return HostCheck("srun", f"scontrol show node {host.name}")


def allocation(environment: Environment = os.environ) -> list[Host]:
    """The hosts of this process's Slurm job."""
    nodelist = environment.get("SLURM_JOB_NODELIST")
    if not nodelist:
        raise UserError(
            "--launcher srun needs an allocation",
            why="SLURM_JOB_NODELIST is not set, so this is not inside a Slurm job",
            remedy="submit a job with --launcher slurm, or allocate hosts with salloc first",
        )
    return [Host(name) for name in expand(nodelist)]


def can_requeue(environment: Environment) -> bool:
    """Whether to requeue this job: not after scancel, nor if Slurm has requeued it (preemption).

    Only batch jobs can be requeued; a shell of salloc cannot.
    """
    shown = _shown(environment.get("SLURM_JOB_ID", "")).stdout
    return _field(shown, "JobState") in ("RUNNING", "SUSPENDED") and _field(shown, "BatchFlag") != "0"


def requeue(environment: Environment) -> None:
    """Requeue this job. Slurm then ends all its processes, this one too."""
    called(["scontrol", "requeue", environment.get("SLURM_JOB_ID", "")], "requeueing the job")


class Slurm:
    """sbatch, scontrol and scancel."""

    name = "slurm"
    syntax = ScriptSyntax("#SBATCH", "sbatch", request)
    inside = "srun"

    def submit(self, script: str) -> str:
        output = called(["sbatch", "--parsable", script], "submitting the job", "slurm-client")
        return output.strip().partition(";")[0]

    def state(self, job: str) -> State:
        shown = _shown(job)
        if shown.returncode != 0:  # Slurm forgets old jobs; other errors may be temporary
            return State("ended" if "Invalid job id" in shown.stderr else "unknown", shown.stderr.strip())
        fields = {
            name: _field(shown.stdout, name) for name in ("JobState", "Reason", "ExitCode", "StartTime", "NodeList")
        }
        state, start = fields["JobState"], fields["StartTime"]
        if state in _WAITING:
            starts = f", expected to start at {start}" if start not in ("", "Unknown") else ""
            return State("waiting", fields["Reason"] + starts)
        if state in _RUNNING:
            return State("running", fields["NodeList"] if state == "RUNNING" else state.lower())
        code, _, number = fields["ExitCode"].partition(":")
        ended_by = 128 + int(number) if number.isdecimal() and int(number) else 0
        return State("ended", state, int(code or 0) or ended_by)

    def cancel(self, job: str) -> None:
        called(["scancel", job], "cancelling the job")


def _shown(job: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["scontrol", "show", "job", "--oneliner", job], capture_output=True, text=True)


def _field(line: str, name: str) -> str:
    """A value of scontrol's NAME=VALUE output."""
    return next((word.partition("=")[2] for word in line.split() if word.startswith(f"{name}=")), "")
