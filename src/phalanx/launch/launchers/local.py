"""`--launcher local`: all roles on this machine."""

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.dry_run import show_plan
from phalanx.launch.hosts import Host
from phalanx.launch.local_job import supervise_here
from phalanx.launch.plan import LaunchPlan
from phalanx.runs.folder import create_run


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job here, or say what that would be."""
    if any(not host.is_here for host in plan.hosts) or plan.sync or plan.evaluator_on:
        raise UserError(
            "--launcher local knows no other hosts", why="hosts are named", remedy="leave them out, or --launcher ssh"
        )
    if plan.dry_run:
        return show_plan(plan, [Host("localhost")], None, console)
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    return supervise_here(plan.job(folder.path), console)
