"""A job over several hosts, whatever carries commands to them; ssh is one such carrier."""

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Sequence

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.carrier import Carrier, LocalCarrier, SshCarrier, Sync, agent_command
from phalanx.launch.channel import CarriedChannel, Channel, Loss
from phalanx.launch.conductor import Conductor
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.messages import Message
from phalanx.launch.processes import run_loop
from phalanx.launch.screen import Screen
from phalanx.launch.stations import Station


def remote_command(python: str | None, sync: Sync | None = None) -> list[str]:
    """What is run on each host: the agent, by the interpreter that was named, or this one's like, or python3."""
    return agent_command(python, synced=sync) if python else agent_command(sys.executable, "python3", sync)


def conduct_over(
    job: Job,
    hosts: Sequence[Host],
    carrier: Carrier,
    console: Console,
    *,
    python: str | None = None,
    sync: Sync | None = None,
) -> int:
    """See a job over these hosts to its end. Returns its exit code."""
    if sync is not None and not isinstance(carrier, SshCarrier):
        raise UserError(
            "--sync-dst-dir needs ssh",
            why="rsync brings files over it",
            remedy="launch with --launcher ssh, or keep the code on a disk that all hosts share",
        )

    def carrier_to(host: Host) -> Carrier:
        return LocalCarrier() if host.is_here else carrier

    syncing = asyncio.Semaphore(32)  # one machine sends to all

    async def opener(station: Station, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> Channel:
        if sync is not None and isinstance(carrier, SshCarrier) and not station.host.is_here:
            async with syncing:
                loss = await _send_folder(sync.command(carrier, station.host))
            if loss is not None:
                lose(loss)
        channel = CarriedChannel(hear, lose)
        if station.live:
            await channel.open(carrier_to(station.host).command(station.host, remote_command(python, sync)))
        return channel

    async def main() -> int:
        stations = [Station(host, carrier_to(host).way(host)) for host in hosts]
        return await Conductor(job, stations, opener, Screen(console)).run()

    return run_loop(main())


def require(program: str, package: str) -> None:
    """A program of this machine that a launcher cannot do without."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program}: not found",
            why="this launcher runs it",
            remedy=f"install it (Debian: {package}), or choose another --launcher",
        )


async def _send_folder(argv: Sequence[str]) -> Loss | None:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    printed, _ = await process.communicate()
    lines = tuple(printed.decode(errors="replace").strip().splitlines()[-5:])
    return Loss(process.returncode, lines) if process.returncode else None
