"""A job over several hosts, whatever carries commands to them; ssh is one such carrier."""

import asyncio
import shlex
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Sequence

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.agent_handle import SSH_FAILED, AgentHandle
from phalanx.launch.channel import Channel, Loss, ProcessChannel
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.messages import Message
from phalanx.launch.remote_shell import LocalShell, RemoteShell, SshShell, Sync, agent_command
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import run_loop

# rsync's exit codes. Where hosts share a disk they may write the same folder at once, and one makes a folder that the
# other was about to make; the next try finds it there.
_PARTLY_SENT, _FILES_VANISHED, _NO_RSYNC, _SYNC_TRIES = 23, 24, 127, 3


def remote_command(python: str | None, sync: Sync | None = None) -> list[str]:
    """What is run on each host: the agent, by the interpreter that was named, or this one's like, or python3."""
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
    """See a job over these hosts to its end. Returns its exit code."""
    if sync is not None and not isinstance(shell, SshShell):
        raise UserError(
            "--sync-dst-dir needs ssh",
            why="rsync brings files over it",
            remedy="launch with --launcher ssh, or keep the code on a disk that all hosts share",
        )

    syncing = asyncio.Semaphore(32)  # one machine sends to all

    async def opener(agent: AgentHandle, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> Channel:
        sent = synced(sync, agent.host)
        if sent is not None and isinstance(shell, SshShell):
            async with syncing:
                loss = await _send_folder(sent, sent.command(shell, agent.host))
            if loss is not None:
                lose(loss)
        channel = ProcessChannel(hear, lose)
        if agent.live:
            await channel.open(shell_to(agent.host, shell).command(agent.host, remote_command(python, sent)))
        return channel

    async def main() -> int:
        agents = [AgentHandle(host, shell_to(host, shell).way(host)) for host in hosts]
        return await JobSupervisor(job, agents, opener, Screen(console)).run()

    return run_loop(main())


def require(program: str, package: str) -> None:
    """A program of this machine that a launcher cannot do without."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program}: not found",
            why="this launcher runs it",
            remedy=f"install it (Debian: {package}), or choose another --launcher",
        )


def shell_to(host: Host, shell: RemoteShell) -> RemoteShell:
    """How commands get to a host: to this one by themselves."""
    return LocalShell() if host.is_here else shell


def synced(sync: Sync | None, host: Host) -> Sync | None:
    """What is sent to a host. The launching one works in the current directory itself, with the code that is there."""
    return None if host.is_here else sync


async def _send_folder(sync: Sync, argv: Sequence[str]) -> Loss | None:
    """Have rsync send it. A loss where the host cannot be reached; what else goes wrong is told."""
    for again in range(_SYNC_TRIES - 1, -1, -1):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        printed = (await process.communicate())[0].decode(errors="replace").strip()
        code = process.returncode or 0
        if code in (0, _FILES_VANISHED):
            return None
        if code == SSH_FAILED:
            return Loss(code, tuple(printed.splitlines()[-5:]))
        if code != _PARTLY_SENT or not again:
            raise _unsent(sync, code, printed, argv)
    return None


def _unsent(sync: Sync, code: int, printed: str, argv: Sequence[str]) -> UserError:
    low = printed.lower()
    if "permission denied" in low or "read-only" in low:
        remedy = "choose a folder that you may write to with --sync-dst-dir"
    elif "no space left" in low or "quota" in low:
        remedy = "make room there, or choose another folder with --sync-dst-dir"
    elif "not found" in low or code == _NO_RSYNC:
        remedy = "install rsync there (Debian: rsync)"
    else:
        remedy = f"try it by hand: {shlex.join(argv)}"
    lines = [line for line in printed.splitlines() if line.strip()]
    told = " / ".join(lines[:3]) or "it printed nothing"
    return UserError(
        f"{sync.source} was not sent to {sync.folder}", why=f"rsync ended with code {code} ({told})", remedy=remedy
    )
