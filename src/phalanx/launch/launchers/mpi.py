"""`--launcher mpi`: an agent on every host, brought there by mpirun."""

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.dry_run import show_plan
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.mpirun import MpirunShell
from phalanx.launch.multi_host import require, supervise_over
from phalanx.launch.plan import LaunchPlan
from phalanx.runs.folder import create_run


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job over its hosts, or say what that would be."""
    if not plan.hosts:
        raise UserError("no hosts are named", why="mpirun must be told where to go", remedy="-H FILE, or --ips a,b")
    odd: list[Host] = [host for host in plan.hosts if host.user or host.port]
    if odd:
        raise UserError(
            f"mpirun does not reach {odd[0].target} as another user or at another port",
            why="it is told names only",
            remedy="put that into ~/.ssh/config, or use --launcher ssh",
        )
    plan.placements()  # refuses what does not fit before anything is written
    shell = MpirunShell(plan.mpirun[0], plan.mpirun[1:])
    if plan.dry_run:
        return show_plan(plan, plan.hosts, shell, console)
    require(shell.program, "openmpi-bin")
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    return supervise_over(plan.job(folder.path), plan.hosts, shell, console, python=plan.python, sync=plan.sync)
