"""A job over several hosts, through any remote shell: ssh, srun, qrsh, mpirun."""

import contextlib
import shutil
import sys
from collections.abc import Sequence

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.channel import Channel, OnDisconnect, OnMessage, ProcessChannel
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.remote_shell import LocalShell, RemoteShell, SshShell, Sync, agent_command
from phalanx.launch.screen import Screen
from phalanx.launch.sending import Sending
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import run_loop


def remote_command(python: str | None, sync: Sync | None = None) -> list[str]:
    """The command that starts the agent: with the named interpreter, or the same path as here, or python3."""
    return agent_command(python, synced=sync) if python else agent_command(sys.executable, "python3", sync)


def supervise_over(
    job: Job,
    hosts: Sequence[Host],
    shell: RemoteShell,
    console: Console,
    *,
    python: str | None = None,
    sync: Sync | None = None,
) -> int:
    """Run a job on these hosts. Returns its exit code."""
    screen = Screen(console)
    sending = Sending(screen, sum(synced(sync, host) is not None for host in hosts))

    async def opener(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
        sent = synced(sync, agent.host)
        if sent is not None and isinstance(shell, SshShell):
            disconnect = await sending.send(sent, sent.command(shell, agent.host))
            if disconnect is not None:
                on_disconnect(disconnect)
        channel = ProcessChannel(on_message, on_disconnect)
        if agent.live:
            await channel.open(shell_to(agent.host, shell).command(agent.host, remote_command(python, sent)))
        return channel

    async def main() -> int:
        agents = [AgentHandle(host, shell_to(host, shell).check(host)) for host in hosts]
        with contextlib.closing(sending):
            return await JobSupervisor(job, agents, opener, screen).run()

    return run_loop(main())


def require(program: str, package: str) -> None:
    """Refuse to start without a program that the launcher needs."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program}: not found",
            why="this launcher runs it",
            remedy=f"install it (Debian: {package}), or choose another --launcher",
        )


def shell_to(host: Host, shell: RemoteShell) -> RemoteShell:
    """The shell for a host: none is needed for this one."""
    return LocalShell() if host.is_here else shell


def synced(sync: Sync | None, host: Host) -> Sync | None:
    """What to copy to a host: nothing to the launching one, which uses the current directory itself."""
    return None if host.is_here else sync
