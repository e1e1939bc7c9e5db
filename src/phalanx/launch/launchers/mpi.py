"""`--launcher mpi`: starts an agent on every host by mpirun."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.dry_run import show_plan
from phalanx.launch.hosts import Host
from phalanx.launch.multi_host import require, supervise_over
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import HostCheck
from phalanx.runs.folder import create_run


@dataclass(frozen=True)
class MpirunShell:
    """One mpirun for each host, since only the first process of an mpirun gets standard input.

    `options` are the user's. The agent is not bound to a core, so that its roles can use all of them.
    """

    program: str = "mpirun"
    options: tuple[str, ...] = ()

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return [self.program, *self.options, "-np", "1", "-host", host.name, "-bind-to", "none", *remote]

    def check(self, host: Host) -> HostCheck:
        return HostCheck("mpirun", shlex.join([self.program, *self.options, "-np", "1", "-host", host.name, "true"]))


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job on its hosts, or show what that would do."""
    if not plan.hosts:
        raise UserError("no hosts are named", why="mpirun needs hosts", remedy="-H FILE, or --ips a,b")
    special: list[Host] = [host for host in plan.hosts if host.user or host.port]
    if special:
        raise UserError(
            f"mpirun cannot use the user or port of {special[0].target}",
            why="it takes host names only",
            remedy="put the user and port into ~/.ssh/config, or use --launcher ssh",
        )
    plan.placements()  # raises errors before anything is written
    shell = MpirunShell(plan.mpirun[0], plan.mpirun[1:])
    if plan.dry_run:
        return show_plan(plan, plan.hosts, shell, console)
    require(shell.program, "openmpi-bin")
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    return supervise_over(plan.job(folder.path), plan.hosts, shell, console, python=plan.python)
