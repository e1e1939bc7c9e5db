"""A job over places that a cluster gives, when it has them: agents there dial in, and all else is as over hosts."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.channel import Channel, Loss
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.launchers.callback_server import CallbackServer
from phalanx.launch.messages import Message
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import Way
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import run_loop
from phalanx.net.interfaces import address_towards, interface_address
from phalanx.runs.folder import create_run

_LOOK_S = 1.0  # between questions to the cluster
_TELL_S = 30.0  # between words about a wait in which nothing changes


class Cluster(Protocol):
    """What starts agents somewhere. Its calls may take a while, and are made from other threads."""

    num_places: int

    @property
    def way(self) -> Way:
        """How to look after a host that was lost."""
        ...

    @property
    def host(self) -> str:
        """A host of the cluster: on the way to it is the address that agents dial."""
        ...

    def submit(self, invitation: str) -> None:
        """Ask for all places, each with an agent that follows the invitation."""
        ...

    def standing(self) -> str:
        """How the wait for places stands, in a few words. Raises UserError where it is in vain."""
        ...

    def end(self) -> None:
        """Nothing of it is to be left. May be called twice, and before `submit`."""
        ...


def refuse_foreign(plan: LaunchPlan) -> None:
    """Options that make no sense where the cluster chooses the hosts."""
    named = plan.hosts or plan.evaluator_on
    given = [name for name, value in {"hosts": named, "--sync-dst-dir": plan.sync}.items() if value]
    if given:
        raise UserError(
            f"--launcher {plan.launcher} chooses the hosts",
            why="hosts are named" if given[0] == "hosts" else "a directory is to be sent to them",
            remedy="leave -H, --ips, --servers-on, --evaluator-on and --sync-dst-dir out; say how many with --nodes",
        )


def places_of(plan: LaunchPlan) -> int:
    """As many places as are asked for with --nodes, by default one for each trainer; servers sit beside them."""
    trainers = plan.request.resolved.config.exchange.workers
    wanted = plan.batch.nodes or trainers
    if wanted > trainers:
        raise UserError(
            f"--nodes {wanted} is more than the job's {trainers} workers",
            why="a place without a trainer would stand idle",
            remedy=f"ask for {trainers}, or for more workers with -n",
        )
    return wanted


def supervise_callbacks(plan: LaunchPlan, cluster: Cluster, console: Console) -> int:
    """Wait for the places, and see the job there to its end. Returns its exit code; nothing of it is left."""

    async def main() -> int:
        address = interface_address(plan.iface) if plan.iface else address_towards(cluster.host)
        bridge = CallbackServer(address, cluster.num_places, plan.ports)
        screen = Screen(console)
        try:
            stopped = await _gather(cluster, bridge, screen)
            if stopped:
                return 128 + stopped
            request = plan.request  # its folder is made now, when there are places to run
            folder = request.resume or create_run(request.out, request.resolved.config.name)
            return await _supervise(plan.job(folder.path), bridge, cluster.way, screen)
        finally:
            try:
                await asyncio.to_thread(cluster.end)
            except UserError as error:  # the job's own end is the more important news
                screen.say(f"warning: {error}")
            bridge.close()

    return run_loop(main())


async def _gather(cluster: Cluster, bridge: CallbackServer, screen: Screen) -> signal.Signals | None:
    """Until all agents have dialed in. The signal, where one came first."""
    signals: list[signal.Signals] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the conductor takes them over later
        loop.add_signal_handler(number, signals.append, number)
    await asyncio.to_thread(cluster.submit, str(bridge.invitation))
    told, told_at = "", 0.0
    while not signals:
        if await bridge.wait(_LOOK_S):
            return None
        standing = await asyncio.to_thread(cluster.standing)
        standing += f"; {len(bridge.callers)} of {cluster.num_places} places have an agent"
        if standing != told or time.monotonic() - told_at > _TELL_S:
            screen.tell(standing)
            told, told_at = standing, time.monotonic()
    screen.say(f"{signals[0].name}: the places are given back")
    return signals[0]


async def _supervise(job: Job, bridge: CallbackServer, way: Way, screen: Screen) -> int:
    callers = sorted(bridge.callers, key=lambda caller: caller.address)  # neighbours in rank are neighbours in place
    hosts = [Host(caller.address) for caller in callers]
    agents = [AgentHandle(host, way) for host in hosts]
    by_station = dict(zip(agents, callers, strict=True))

    async def opener(agent: AgentHandle, hear: Callable[[Message], None], lose: Callable[[Loss], None]) -> Channel:
        return bridge.channel(by_station[agent], hear, lose)

    return await JobSupervisor(job, agents, opener, screen).run()
