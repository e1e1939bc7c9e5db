"""Slurm: what a batch script asks for, the hosts of an allocation, srun as carrier, and queueing a job again."""

import os
import signal
import subprocess
from collections.abc import Sequence

from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.batch_script import LOG, WARNING_S, BatchJob, Dialect, clock
from phalanx.launch.launchers.nodelist import expand
from phalanx.launch.launchers.scheduler import State, called
from phalanx.launch.remote_shell import Way, deaf_to

STOP_WITH = signal.SIGINT  # how the launcher, which hears Slurm's SIGTERM, stops trainers that do not
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "RESIZING", "SIGNALING")


def request(job: BatchJob) -> list[str]:
    """The lines after #SBATCH. The signal before the time limit goes to the batch process alone, which is ours."""
    asked = job.resources
    given = {
        "job-name": job.name,
        "output": _file_name(str(job.run / LOG)),
        "open-mode": "append",
        "nodes": asked.nodes,
        "nodelist": asked.node,
        "ntasks-per-node": asked.roles_per_node,
        "gpus-per-node": asked.gpus_per_node,
        "partition": asked.partition,
        "account": asked.account,
        "time": clock(asked.time_s) if asked.time_s else None,
        "signal": f"B:USR1@{WARNING_S}",
    }
    return [*(f"--{name}={value}" for name, value in given.items() if value is not None), "--requeue"]


def _file_name(path: str) -> str:
    """sbatch splits a line at spaces outside quotes, and fills in %j and its like in names of files."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if " " in path or escaped != path else path


class SrunShell:
    """A step of one task on one host of the allocation, which may use all that the job has there.

    Slurm ends a job by SIGTERM to each of its processes, however they were started. Roles do not hear it: a server that
    stopped at once would leave its trainers nowhere to save from, and a trainer takes a second signal for impatience.
    """

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--overlap", "--cpu-bind=none", "--quiet"]
        return ["srun", *one, *deaf_to("TERM", remote)]

    def way(self, host: Host) -> Way:
        return Way("srun", f"scontrol show node {host.name}")


def allocation(environment: Environment = os.environ) -> list[Host]:
    """The hosts of the job that this process is in."""
    nodelist = environment.get("SLURM_JOB_NODELIST")
    if not nodelist:
        raise UserError(
            "--launcher srun needs an allocation",
            why="SLURM_JOB_NODELIST is not set, so this is not inside a Slurm job",
            remedy="--launcher slurm submits a job; or take hosts with salloc first",
        )
    return [Host(name) for name in expand(nodelist)]


def can_queue_again(environment: Environment) -> bool:
    """Whether this job is still to be queued: not if Slurm is ending it (scancel) or has queued it (preemption).

    Only a batch job can be queued again; a shell of salloc is not one.
    """
    shown = _shown(environment.get("SLURM_JOB_ID", "")).stdout
    return _field(shown, "JobState") in ("RUNNING", "SUSPENDED") and _field(shown, "BatchFlag") != "0"


def queue_again(environment: Environment) -> None:
    """Put this job back into the queue. Slurm then ends its processes, this one too: what is to be said comes first."""
    called(["scontrol", "requeue", environment.get("SLURM_JOB_ID", "")], "queueing the job again")


class Slurm:
    """sbatch, scontrol and scancel."""

    name = "slurm"
    dialect = Dialect("#SBATCH", "sbatch", request)
    inside = "srun"

    def submit(self, script: str) -> str:
        told = called(["sbatch", "--parsable", script], "submitting the job", "slurm-client")
        return told.strip().partition(";")[0]

    def state(self, job: str) -> State:
        shown = _shown(job)
        if shown.returncode != 0:  # a job that ended long ago is forgotten; a controller that restarts is not
            return State("ended" if "Invalid job id" in shown.stderr else "unknown", shown.stderr.strip())
        told = {
            name: _field(shown.stdout, name) for name in ("JobState", "Reason", "ExitCode", "StartTime", "NodeList")
        }
        if told["JobState"] in _WAITING:
            starts = f", expected to start at {told['StartTime']}" if told["StartTime"] not in ("", "Unknown") else ""
            return State("waiting", told["Reason"] + starts)
        if told["JobState"] in _RUNNING:
            return State("running", told["NodeList"] if told["JobState"] == "RUNNING" else told["JobState"].lower())
        code, _, number = told["ExitCode"].partition(":")
        ended_by = 128 + int(number) if number.isdecimal() and int(number) else 0
        return State("ended", told["JobState"], int(code or 0) or ended_by)

    def cancel(self, job: str) -> None:
        called(["scancel", job], "cancelling the job")


def _shown(job: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["scontrol", "show", "job", "--oneliner", job], capture_output=True, text=True)


def _field(line: str, name: str) -> str:
    """A value among the NAME=VALUE words that scontrol prints."""
    return next((word.partition("=")[2] for word in line.split() if word.startswith(f"{name}=")), "")
