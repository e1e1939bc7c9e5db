"""The agents of a job: opens channels to all of them at once, waits for their replies, and notices silent hosts."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle, check_versions, clock_warnings, refuse_failed
from phalanx.launch.channel import Channel, Disconnect, OnDisconnect, OnMessage
from phalanx.launch.job import Job, forwarded_variables
from phalanx.launch.messages import GRACE_S, PING_S, SILENCE_S, Message, is_event
from phalanx.launch.run_files import marker
from phalanx.launch.screen import Screen
from phalanx.machine.open_files import allow_many_files
from phalanx.machine.system import SystemMeter
from phalanx.net.interfaces import address_towards

HELLO_S = 60.0  # for a host to answer: a slow login, a cold disk
SETUP_S = 3600.0  # for the user's set-up command
MARGIN_S = 5.0  # for a reply, beyond the time of the work

# Opens the channel to an agent.
Opener = Callable[[AgentHandle, OnMessage, OnDisconnect], Awaitable[Channel]]


class StopNow(Exception):
    """The user asked for an immediate stop: all waits end."""


class AgentPool:
    """All agents of a job. `on_event` gets their events about roles."""

    def __init__(
        self,
        agents: Sequence[AgentHandle],
        opener: Opener,
        screen: Screen,
        on_event: Callable[[AgentHandle, Message], None],
    ) -> None:
        self.agents = list(agents)
        self._opener, self._screen, self._on_event = opener, screen, on_event
        self._changed = asyncio.Event()
        self._meter = SystemMeter()  # of this host
        self.stop_now = False  # every wait raises StopNow

    @property
    def live(self) -> list[AgentHandle]:
        return [agent for agent in self.agents if agent.live]

    async def open(self) -> None:
        """Open all channels, and wait for all agents. A host that cannot be used is an error."""
        allow_many_files()
        with self._screen.progress("hosts ready:", len(self.agents)) as advance:
            opening = [asyncio.create_task(self._open(agent)) for agent in self.agents]
            await self._wait_for_all("hello", HELLO_S, advance)
            for task in opening:
                task.cancel()
        refuse_failed(self.agents, "starting the agent")
        if not all(agent.in_process for agent in self.agents):
            check_versions(self.agents)
        for warning in clock_warnings(self.agents):
            self._screen.warn(f"warning: {warning}")

    async def prepare(self, job: Job) -> None:
        """Make folders and run the user's set-up command, on every host."""
        message: Message = {
            "request": "prepare",
            "marker": secrets.token_hex(8),  # hosts that see it in the run folder share that with the launching host
            "cwd": job.cwd,
            "setup": job.setup,
            "new_run": not job.resumes,
        }
        try:
            marker(job.run, message["marker"], "create")
            for agent in self.agents:
                if agent.in_process:
                    agent.send({**message, "run": str(job.run), "environment": {}})
                else:
                    agent.send({**message, "run": job.out or str(job.run), "environment": forwarded_variables()})
            await self._wait_for_all("ready", SETUP_S if job.setup else HELLO_S)
        except OSError as error:
            raise UserError(
                f"{job.run} cannot be written",
                why=error.strerror or str(error),
                remedy="free disk space or fix the permissions, or choose another folder with --out",
            ) from error
        finally:
            with contextlib.suppress(OSError):
                marker(job.run, message["marker"], "remove")
        refuse_failed(self.agents, "preparing")

    async def listen(self, names: dict[int, list[str]], files: Sequence[str], job: Job) -> dict[str, str]:
        """Let the live hosts choose addresses for their roles. Returns the address of every name; `files` are files."""
        agents = self.live
        host_addresses = _host_addresses(agents)
        ports = list(job.ports) if job.ports else None
        message = {"request": "listen", "iface": job.iface, "ports": ports, "files": list(files)}
        for number, agent in enumerate(agents):
            agent.events.pop("listening", None)
            peers = [address for other, address in enumerate(host_addresses) if other != number]
            agent.send({**message, "names": names.get(number, []), "peers": peers})
        await self._wait_for_all("listening", HELLO_S)
        refuse_failed(agents, "choosing addresses")
        return {name: address for agent in agents for name, address in agent.events["listening"]["addresses"].items()}

    async def end_roles(self, names: Callable[[AgentHandle], list[str] | None], grace_s: float = GRACE_S) -> None:
        """SIGTERM, wait, SIGKILL for the named roles of each host. None means all roles, and cleans up."""
        for agent in self.live:
            agent.events.pop("ended", None)
            agent.send({"request": "end", "grace_s": grace_s, "roles": names(agent)})
        await self.wait_until(lambda: all("ended" in agent.events for agent in self.live), grace_s + MARGIN_S)

    async def inspect(self) -> dict[str, str]:
        """What keeps roles from running, by name, as far as the live hosts tell in time."""
        for agent in self.live:
            agent.events.pop("inspected", None)
            agent.send({"request": "inspect"})
        await self.wait_until(lambda: all("inspected" in agent.events for agent in self.live), MARGIN_S)
        found = [agent.events.get("inspected", {}).get("roles", {}) for agent in self.live]
        return {name: text for roles in found for name, text in roles.items()}

    async def close(self) -> None:
        """Close all channels. An agent that does not answer ends by itself."""
        closing = [asyncio.create_task(agent.channel.close()) for agent in self.live if agent.channel is not None]
        if closing:
            await asyncio.wait(closing, timeout=MARGIN_S)
        for agent in self.agents:
            if agent.channel is not None:
                agent.channel.abort()

    def raise_errors(self) -> None:
        """Raise an error that a host has reported."""
        for agent in self.live:
            if agent.error is not None:
                error = agent.error
                raise UserError(f"{agent.name}: {error.what}", why=error.why, remedy=error.remedy)

    def changed(self) -> None:
        """Make waits look at their condition again."""
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until messages make the condition true. False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left = deadline - time.monotonic()
            if self.stop_now:
                raise StopNow
            if left <= 0:
                return False
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return True

    async def watch(self) -> None:
        """Ping all agents for ever, and disconnect those that are silent for too long."""
        looked = time.monotonic()
        while True:
            stood_still_s = max(0.0, time.monotonic() - looked - PING_S)  # this process: stopped, or without a core
            looked = time.monotonic()
            for agent in self.live:
                agent.last_message = min(looked, agent.last_message + stood_still_s)  # nobody was pinged meanwhile
                if agent.in_process:
                    self._take_figures(agent, self._meter.read_host())
                if agent.in_process or "hello" not in agent.events:
                    continue
                if time.monotonic() - agent.last_message > SILENCE_S:
                    self.disconnect(agent, f"no message for {SILENCE_S:g} s")
                agent.send({"request": "ping"})
            await asyncio.sleep(PING_S)

    def _take_figures(self, agent: AgentHandle, figures: object) -> None:
        if isinstance(figures, dict):
            known = {name: figures.get(name) for name in ("cpu", "memory", "memory_total")}
            numbers = {name: value for name, value in known.items() if isinstance(value, int | float)}
            agent.system = {"host": agent.name, "t": time.time(), **numbers}

    def disconnect(self, agent: AgentHandle, why: str) -> None:
        agent.disconnect = agent.disconnect or Disconnect(None, (why,))
        if agent.channel is not None:
            agent.channel.abort()
        self.changed()

    async def _open(self, agent: AgentHandle) -> None:
        def on_disconnect(disconnect: Disconnect) -> None:
            agent.disconnect = agent.disconnect or disconnect
            self.changed()

        try:
            agent.channel = await self._opener(agent, lambda message: self._receive(agent, message), on_disconnect)
        except UserError as error:
            agent.error = error
            self.changed()

    def _receive(self, agent: AgentHandle, message: Message) -> None:
        agent.last_message = time.monotonic()
        if not is_event(message):
            return self.disconnect(agent, f"it sent a message that no agent sends: {str(message)[:200]}")
        kind = message["event"]
        if kind == "pong":
            return self._take_figures(agent, message.get("system"))
        if kind in ("started", "output", "exit"):
            try:
                self._on_event(agent, message)
            except UserError as error:  # a log that cannot be written
                agent.error = error
        elif kind == "error":
            agent.error = UserError(message["what"], why=message["why"], remedy=message["remedy"])
        elif kind != "chunk" or (message["path"], message["offset"]) == agent.reading:  # not one that was given up
            agent.events[kind] = message
        if kind == "hello":
            agent.skew_s = message["clock"] - time.time()
        return self.changed()

    async def _wait_for_all(self, kind: str, timeout_s: float, advance: Callable[[int], object] = int) -> None:
        """Wait until each agent has sent an event of this kind, or has failed."""
        counted = 0

        def all_done() -> bool:
            nonlocal counted
            done = sum(kind in agent.events or agent.error is not None or not agent.live for agent in self.agents)
            advance(done - counted)
            counted = done
            return done == len(self.agents)

        if not await self.wait_until(all_done, timeout_s):
            for agent in self.live:
                if kind not in agent.events and agent.error is None:
                    self.disconnect(agent, f"no answer within {timeout_s:g} s")


def _host_addresses(agents: Sequence[AgentHandle]) -> list[str]:
    """For each host, an address that the other hosts can connect to."""
    addresses = [str(agent.events["hello"]["address"] or agent.name) for agent in agents]
    remote = [address for agent, address in zip(agents, addresses, strict=True) if not agent.host.is_here]
    return [
        address_towards(remote[0]) if remote and agent.host.is_here else address
        for agent, address in zip(agents, addresses, strict=True)
    ]
