"""A job on hosts that a cluster chooses (Ray, YARN): the cluster starts agents, and these connect to the launcher."""

import asyncio
import signal
import time
from typing import Protocol

from rich.console import Console

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.channel import Channel, OnDisconnect, OnMessage
from phalanx.launch.hosts import Host
from phalanx.launch.job import Job
from phalanx.launch.launchers.callback_server import CallbackServer
from phalanx.launch.plan import LaunchPlan
from phalanx.launch.remote_shell import HostCheck
from phalanx.launch.screen import Screen
from phalanx.launch.supervisor import JobSupervisor
from phalanx.machine.processes import run_loop
from phalanx.net.interfaces import address_towards, interface_address
from phalanx.runs.folder import create_run

_POLL_S = 1.0  # between queries to the cluster
_REPEAT_S = 30.0  # between messages about an unchanged state


class Cluster(Protocol):
    """Starts agents on its hosts. Its methods may block, so they are called in other threads."""

    num_agents: int

    @property
    def check(self) -> HostCheck:
        """How a user can look at a lost host."""
        ...

    @property
    def host(self) -> str:
        """A host of the cluster. Agents connect to this machine's address on the route to it."""
        ...

    def submit(self, callback: str) -> None:
        """Request all agents. `callback` tells them how to connect to the launcher."""
        ...

    def status(self) -> str:
        """The state of the request, in a few words. Raises UserError if it has failed."""
        ...

    def end(self) -> None:
        """Release everything. May be called twice, and before `submit`."""
        ...


def agent_count(plan: LaunchPlan) -> int:
    """The number of agents: --nodes, or one for each trainer. Servers share hosts with trainers."""
    trainers = plan.request.resolved.config.exchange.workers
    agents = plan.batch.nodes or trainers
    if agents > trainers:
        raise UserError(
            f"--nodes {agents} is more than the job's {trainers} workers",
            why="a node without a worker would be idle",
            remedy=f"request {trainers} nodes, or more workers with -n",
        )
    return agents


def supervise_callbacks(plan: LaunchPlan, cluster: Cluster, console: Console) -> int:
    """Wait for the agents, and run the job on them. Returns its exit code, with everything released."""

    async def main() -> int:
        address = interface_address(plan.iface) if plan.iface else address_towards(cluster.host)
        server = CallbackServer(address, cluster.num_agents, plan.ports)
        screen = Screen(console)
        try:
            stopped = await _wait_for_agents(cluster, server, screen)
            if stopped:
                return 128 + stopped
            request = plan.request  # the run folder is made now, when the job can start
            folder = request.resume or create_run(request.out, request.resolved.config.name)
            return await _supervise(plan.job(folder.path), server, cluster.check, screen)
        finally:
            try:
                await asyncio.to_thread(cluster.end)
            except UserError as error:  # do not hide the result of the job
                screen.warn(f"warning: {error}")
            server.close()

    return run_loop(main())


async def _wait_for_agents(cluster: Cluster, server: CallbackServer, screen: Screen) -> signal.Signals | None:
    """Wait until all agents have connected. Returns the signal, if one came first."""
    signals: list[signal.Signals] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the supervisor replaces these handlers later
        loop.add_signal_handler(number, signals.append, number)
    await asyncio.to_thread(cluster.submit, str(server.callback))
    shown, shown_at = "", 0.0
    while not signals:
        if await server.wait(_POLL_S):
            return None
        status = await asyncio.to_thread(cluster.status)
        status += f"; {len(server.connections)} of {cluster.num_agents} agents connected"
        if status != shown or time.monotonic() - shown_at > _REPEAT_S:
            screen.info(status)
            shown, shown_at = status, time.monotonic()
    screen.warn(f"{signals[0].name}: cancelling the request")
    return signals[0]


async def _supervise(job: Job, server: CallbackServer, check: HostCheck, screen: Screen) -> int:
    connections = sorted(server.connections, key=lambda one: one.address)  # neighbouring ranks share hosts
    agents = [AgentHandle(Host(connection.address), check) for connection in connections]
    connection_of = dict(zip(agents, connections, strict=True))

    async def opener(agent: AgentHandle, on_message: OnMessage, on_disconnect: OnDisconnect) -> Channel:
        return server.channel(connection_of[agent], on_message, on_disconnect)

    return await JobSupervisor(job, agents, opener, screen).run()
