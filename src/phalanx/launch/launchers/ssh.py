"""`--launcher ssh`: starts an agent on every host by ssh."""

from dataclasses import replace

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.dry_run import show_plan
from phalanx.launch.multi_host import require, supervise_over
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import SshShell
from phalanx.runs.folder import create_run


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job on its hosts, or show what that would do."""
    if not plan.hosts:
        raise UserError("no hosts are named", why="ssh needs hosts", remedy="-H FILE, or --ips a,b")
    plan.placements()  # raises errors before anything is written
    shell = SshShell(plan.ssh)
    if plan.dry_run:
        return show_plan(plan, plan.hosts, shell, console)
    require(plan.ssh[0], "openssh-client")
    if plan.sync:
        require("rsync", "rsync")
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    sync = replace(plan.sync, run=folder.path) if plan.sync else None
    return supervise_over(plan.job(folder.path), plan.hosts, shell, console, python=plan.python, sync=sync)
