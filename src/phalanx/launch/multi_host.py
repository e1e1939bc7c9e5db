"""A job over several hosts, through any remote shell: ssh, srun, qrsh, mpirun."""

import asyncio
import shlex
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Sequence

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.agent_handle import SSH_FAILED, AgentHandle
from phalanx.launch.channel import Channel, Disconnect, OnDisconnect, OnMessage, ProcessChannel
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.remote_shell import LocalShell, RemoteShell, SshShell, Sync, agent_command
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import run_loop

# rsync's exit codes. Hosts that share a disk may write the same folder at once, and one makes a folder that the other
# was about to make; the next try finds it.
_PARTLY_SENT, _FILES_VANISHED, _NO_RSYNC, _SYNC_TRIES = 23, 24, 127, 3


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
    if sync is not None and not isinstance(shell, SshShell):
        raise UserError(
            "--sync-dst-dir needs ssh",
            why="rsync copies files over it",
            remedy="launch with --launcher ssh, or keep the code on a disk that all hosts share",
        )

    syncing = asyncio.Semaphore(32)  # one machine sends to all

    async def opener(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
        sent = synced(sync, agent.host)
        if sent is not None and isinstance(shell, SshShell):
            async with syncing:
                disconnect = await _send_folder(sent, sent.command(shell, agent.host))
            if disconnect is not None:
                on_disconnect(disconnect)
        channel = ProcessChannel(on_message, on_disconnect)
        if agent.live:
            await channel.open(shell_to(agent.host, shell).command(agent.host, remote_command(python, sent)))
        return channel

    async def main() -> int:
        agents = [AgentHandle(host, shell_to(host, shell).check(host)) for host in hosts]
        return await JobSupervisor(job, agents, opener, Screen(console)).run()

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


async def _send_folder(sync: Sync, argv: Sequence[str]) -> Disconnect | None:
    """Run rsync. Returns a Disconnect if the host cannot be reached; raises other errors."""
    for tries_left in range(_SYNC_TRIES - 1, -1, -1):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        printed = (await process.communicate())[0].decode(errors="replace").strip()
        code = process.returncode or 0
        if code in (0, _FILES_VANISHED):
            return None
        if code == SSH_FAILED:
            return Disconnect(code, tuple(printed.splitlines()[-5:]))
        if code != _PARTLY_SENT or not tries_left:
            raise _sync_error(sync, code, printed, argv)
    return None


def _sync_error(sync: Sync, code: int, printed: str, argv: Sequence[str]) -> UserError:
    low = printed.lower()
    if "permission denied" in low or "read-only" in low:
        remedy = "choose a folder that you may write to with --sync-dst-dir"
    elif "no space left" in low or "quota" in low:
        remedy = "free disk space there, or choose another folder with --sync-dst-dir"
    elif "not found" in low or code == _NO_RSYNC:
        remedy = "install rsync there (Debian: rsync)"
    else:
        remedy = f"try it by hand: {shlex.join(argv)}"
    lines = [line for line in printed.splitlines() if line.strip()]
    output = " / ".join(lines[:3]) or "it printed nothing"
    return UserError(
        f"{sync.source} was not sent to {sync.folder}", why=f"rsync ended with code {code} ({output})", remedy=remedy
    )
