"""`--launcher srun`, `qrsh`: runs a job inside an allocation, and requeues it when the time runs out.

At the scheduler's warning before the time limit, workers save and stop; the requeued job resumes.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from rich.console import Console
from rich.text import Text

from phalanx.launch.dry_run import show_plan
from phalanx.launch.hosts import Host
from phalanx.launch.launchers import sge, slurm
from phalanx.launch.multi_host import require, supervise_over
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.record import STOPPED_BY_USER, load_record
from phalanx.launch.remote_shell import RemoteShell
from phalanx.runs.folder import create_run

_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)  # exit codes of a job that saved and stopped


@dataclass
class Notice:
    """The scheduler's warning signal, if one came."""

    received: signal.Signals | None = None


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job on the hosts of the allocation."""
    hosts, shell = _allocation(plan)
    plan = replace(plan, hosts=tuple(hosts))
    plan.placements()  # raises errors before anything is written
    if plan.dry_run:
        return show_plan(plan, hosts, shell, console)
    require(plan.launcher, {"srun": "slurm-client", "qrsh": "gridengine-client"}[plan.launcher])
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    with _notice() as notice:
        job = replace(plan.job(folder.path), stop_with=slurm.STOP_WITH if plan.launcher == "srun" else None)
        code = supervise_over(job, hosts, shell, console, python=plan.python)
    if code not in _STOPPED or load_record(folder.path).cause == STOPPED_BY_USER:
        return code
    return _requeue(plan.launcher, notice, console)


def _allocation(plan: LaunchPlan) -> tuple[list[Host], RemoteShell]:
    if plan.launcher == "srun":
        return slurm.allocation(), slurm.SrunShell()
    hosts, shell = sge.allocation()
    # With --nodes, each slot is a node, which takes any number of trainers.
    return [replace(host, slots=None) for host in hosts] if plan.batch.nodes else hosts, shell


@contextmanager
def _notice() -> Iterator[Notice]:
    """Turn a scheduler's warning into SIGTERM, which stops the job."""
    notice = Notice()

    def on_warning(number: int, frame: FrameType | None) -> None:
        notice.received = signal.Signals(number)
        os.kill(os.getpid(), signal.SIGTERM)

    before: dict[int, Callable[..., object] | int | None] = {
        number: signal.signal(number, on_warning) for number in (signal.SIGUSR1, signal.SIGUSR2)
    }
    try:
        yield notice
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _requeue(launcher: str, notice: Notice, console: Console) -> int:
    """Requeue the job: by a command in Slurm, by the exit code in Grid Engine, whose SIGUSR2 means a deletion."""
    requeue = notice.received is signal.SIGUSR1 if launcher == "qrsh" else slurm.can_requeue(os.environ)
    if not requeue:
        return _STOPPED[0]
    console.print(Text("requeueing the job; it resumes from its checkpoint"), soft_wrap=True)
    if launcher == "qrsh":
        return sge.REQUEUE
    slurm.requeue(os.environ)
    return _STOPPED[0]
