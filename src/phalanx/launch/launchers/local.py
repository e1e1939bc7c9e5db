"""`--launcher local`: all roles on this machine. The agent is inside the launcher, and trainer 0 has the terminal."""

from pathlib import Path

from rich.console import Console

from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.channel import Channel, InProcessChannel, OnDisconnect, OnMessage
from phalanx.launch.dry_run import show_plan
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job, new_group_request, policy_for, role_counts
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import adopting_orphans, run_loop
from phalanx.roles.request import Request
from phalanx.runs.folder import create_run


def start(plan: LaunchPlan, console: Console) -> int:
    """Run the job here, or show what that would do."""
    if plan.dry_run:
        return show_plan(plan, [Host("localhost")], None, console)
    folder = plan.request.resume or create_run(plan.request.out, plan.request.resolved.config.name)
    return supervise_here(plan.job(folder.path), console)


def local_job(run: Path, request: Request) -> Job:
    """The job of `phalanx train` with several processes."""
    config = request.config
    return Job(
        run=run,
        request=request.to_data(),
        new_group_request=new_group_request(request),
        counts=role_counts(config),
        policy=policy_for(config.exchange),
        command=request.command,
        at_step=request.at_step,
        log_dir=config.train.log_dir,
    )


def supervise_here(job: Job, console: Console) -> int:
    """Run a job on this machine. Returns its exit code."""

    async def main() -> int:
        agent = AgentHandle(Host("localhost"), in_process=True)
        return await JobSupervisor(job, [agent], _open, Screen(console, quiet=True)).run()

    with adopting_orphans():
        return run_loop(main())


async def _open(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
    return InProcessChannel(on_message)
