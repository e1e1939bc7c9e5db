"""`--launcher srun`, `qrsh`: the job inside an allocation, and what becomes of it when the scheduler ends that.

A warning before the time limit makes the trainers save and end; the job is then queued again, and resumes by itself.
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
from phalanx.launch.record import ASKED, load_record
from phalanx.launch.remote_shell import RemoteShell
from phalanx.runs.folder import create_run

_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)  # exit codes of a job that was told to stop, and saved


@dataclass
class Notice:
    """Which warning the scheduler gave, if any."""

    received: signal.Signals | None = None


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job over the hosts of the allocation."""
    hosts, shell = _allocation(plan)
    plan = replace(plan, hosts=tuple(hosts))
    plan.placements()  # refuses what does not fit before anything is written
    if plan.dry_run:
        return show_plan(plan, hosts, shell, console)
    require(plan.launcher, {"srun": "slurm-client", "qrsh": "gridengine-client"}[plan.launcher])
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    with _notice() as notice:
        job = replace(plan.job(folder.path), stop_with=slurm.STOP_WITH if plan.launcher == "srun" else None)
        code = supervise_over(job, hosts, shell, console, python=plan.python)
    if code not in _STOPPED or load_record(folder.path).cause == ASKED:
        return code
    return _queue_again(plan.launcher, notice, console)


def _allocation(plan: LaunchPlan) -> tuple[list[Host], RemoteShell]:
    if plan.launcher == "srun":
        return slurm.allocation(), slurm.SrunShell()
    hosts, shell = sge.allocation()
    # Where so many nodes were asked for, a slot stands for one, however many trainers it is to have.
    return [replace(host, slots=None) for host in hosts] if plan.batch.nodes else hosts, shell


@contextmanager
def _notice() -> Iterator[Notice]:
    """Take a scheduler's warning for the request to stop that every launcher knows."""
    notice = Notice()

    def warned(number: int, frame: FrameType | None) -> None:
        notice.received = signal.Signals(number)
        os.kill(os.getpid(), signal.SIGTERM)

    before: dict[int, Callable[..., object] | int | None] = {
        number: signal.signal(number, warned) for number in (signal.SIGUSR1, signal.SIGUSR2)
    }
    try:
        yield notice
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _queue_again(launcher: str, notice: Notice, console: Console) -> int:
    """Slurm is told; Grid Engine reads it from the exit code. Its second signal says that the job is deleted."""
    again = notice.received is signal.SIGUSR1 if launcher == "qrsh" else slurm.can_queue_again(os.environ)
    if not again:
        return _STOPPED[0]
    console.print(Text("the job is queued again, and goes on from its checkpoint"), soft_wrap=True)
    if launcher == "qrsh":
        return sge.QUEUE_AGAIN
    slurm.queue_again(os.environ)
    return _STOPPED[0]
