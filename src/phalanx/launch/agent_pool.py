"""The hosts of a job, assembled: channels to all of them at once, answers awaited together, silence noticed."""

import asyncio
import contextlib
import resource
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from phalanx.errors import UserError
from phalanx.launch.agent_handle import AgentHandle, check_versions, clock_warnings, refuse_lost
from phalanx.launch.channel import Channel, Loss
from phalanx.launch.job import Job, carried_variables
from phalanx.launch.messages import GRACE_S, PING_S, SILENCE_S, Message
from phalanx.launch.run_files import mark
from phalanx.launch.screen import Screen
from phalanx.net.interfaces import address_towards

HELLO_S = 60.0  # for a host to answer: a slow login, a cold disk
SETUP_S = 3600.0  # for the user's set-up command
MARGIN_S = 5.0  # for an answer beyond the time that the work takes

# Opens the channel to a station's agent, given what is to be told of messages and of its loss.
Opener = Callable[[AgentHandle, Callable[[Message], None], Callable[[Loss], None]], Awaitable[Channel]]


class EndNow(Exception):
    """Asked to end at once: nobody waits for anything any more."""


class AgentPool:
    """Stations with their channels. `hear` is given what agents say about roles."""

    def __init__(
        self,
        agents: Sequence[AgentHandle],
        opener: Opener,
        screen: Screen,
        hear: Callable[[AgentHandle, Message], None],
    ) -> None:
        self.agents = list(agents)
        self._opener, self._screen, self._hear = opener, screen, hear
        self._changed = asyncio.Event()
        self.hurry = False  # whoever waits is to wait no longer

    @property
    def live(self) -> list[AgentHandle]:
        return [agent for agent in self.agents if agent.loss is None]

    async def open(self) -> None:
        """All at once, until every agent has said hello. Any host that cannot be used is an error."""
        _allow_many_files()
        with self._screen.progress("hosts that answer:", len(self.agents)) as advance:
            opening = [asyncio.create_task(self._open(agent)) for agent in self.agents]
            await self._all_say("hello", HELLO_S, advance)
            for task in opening:
                task.cancel()
        refuse_lost(self.agents, "starting the agent")
        if not all(agent.inner for agent in self.agents):
            check_versions(self.agents)
        for warning in clock_warnings(self.agents):
            self._screen.say(f"warning: {warning}")

    async def prepare(self, job: Job) -> None:
        """Folders, files and the user's set-up command, on every host."""
        message: Message = {
            "do": "prepare",
            "mark": secrets.token_hex(8),  # who sees it in the run's folder shares that with the launching host
            "cwd": job.cwd,
            "setup": job.setup,
        }
        message["fresh"] = not job.resumes
        try:
            mark(job.run, message["mark"], "make")
            for agent in self.agents:
                told = {"run": str(job.run), "environment": {}}
                if not agent.inner:
                    told = {"run": job.out or str(job.run), "environment": carried_variables()}
                agent.send({**message, **told})
            await self._all_say("ready", SETUP_S if job.setup else HELLO_S)
        except OSError as error:
            raise UserError(
                f"{job.run} cannot be written",
                why=error.strerror or str(error),
                remedy="make room or mend the permissions, or choose another place with --out",
            ) from error
        finally:
            with contextlib.suppress(OSError):
                mark(job.run, message["mark"], "drop")
        refuse_lost(self.agents, "preparing")

    async def listen(self, wanted: dict[int, list[str]], job: Job) -> dict[str, str]:
        """Have the live hosts choose where their roles will listen: an address for every name."""
        agents = self.live
        reached = _reached(agents)
        message = {"do": "listen", "iface": job.iface, "ports": list(job.ports) if job.ports else None}
        for number, agent in enumerate(agents):
            agent.said.pop("listening", None)
            peers = [address for other, address in enumerate(reached) if other != number]
            agent.send({**message, "names": wanted.get(number, []), "peers": peers})
        await self._all_say("listening", HELLO_S)
        refuse_lost(agents, "finding a place to listen")
        return {name: place for one in agents for name, place in one.said["listening"]["places"].items()}

    async def end_roles(self, names: Callable[[AgentHandle], list[str] | None], grace_s: float = GRACE_S) -> None:
        """TERM, grace, KILL of the named roles on every host. None stands for all, and for cleaning up."""
        for agent in self.live:
            agent.said.pop("ended", None)
            agent.send({"do": "end", "grace_s": grace_s, "roles": names(agent)})
        await self.until(lambda: all("ended" in one.said for one in self.live), grace_s + MARGIN_S)

    async def close(self) -> None:
        """Say goodbye; who does not answer is let go, and ends by itself."""
        closing = [asyncio.create_task(one.channel.close()) for one in self.live if one.channel is not None]
        if closing:
            await asyncio.wait(closing, timeout=MARGIN_S)
        for agent in self.agents:
            if agent.channel is not None:
                agent.channel.cut()

    def refuse_trouble(self) -> None:
        """Raise what went wrong on a host, or with what was heard of it, since all were ready."""
        for agent in self.live:
            if agent.trouble is not None:
                told = agent.trouble
                raise UserError(f"{agent.name}: {told.what}", why=told.why, remedy=told.remedy)

    def changed(self) -> None:
        self._changed.set()

    async def until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something that was heard makes it true. False if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not true():
            left = deadline - time.monotonic()
            if self.hurry:
                raise EndNow
            if left <= 0:
                return False
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return True

    async def watch(self) -> None:
        """Ping for ever, and let go of who has been silent for too long."""
        while True:
            for agent in self.live:
                if agent.inner or "hello" not in agent.said:
                    continue
                if time.monotonic() - agent.heard > SILENCE_S:
                    self.lose(agent, f"nothing was heard of it for {SILENCE_S:g} s")
                agent.send({"do": "ping"})
            await asyncio.sleep(PING_S)

    def lose(self, agent: AgentHandle, why: str) -> None:
        agent.loss = agent.loss or Loss(None, (why,))
        if agent.channel is not None:
            agent.channel.cut()
        self.changed()

    async def _open(self, agent: AgentHandle) -> None:
        def lose(loss: Loss) -> None:
            agent.loss = agent.loss or loss
            self.changed()

        try:
            agent.channel = await self._opener(agent, lambda message: self._take(agent, message), lose)
        except UserError as error:
            agent.trouble = error
            self.changed()

    def _take(self, agent: AgentHandle, message: Message) -> None:
        agent.heard = time.monotonic()
        kind = message["say"]
        if kind == "pong":
            return
        if kind in ("started", "out", "exit"):
            try:
                self._hear(agent, message)
            except UserError as error:  # a log that cannot be written
                agent.trouble = error
        elif kind == "trouble":
            agent.trouble = UserError(message["what"], why=message["why"], remedy=message["remedy"])
        else:
            agent.said[kind] = message
        if kind == "hello":
            agent.skew_s = message["clock"] - time.time()
        self.changed()

    async def _all_say(self, kind: str, timeout_s: float, advance: Callable[[int], object] = int) -> None:
        """Until each live station has said something of this kind, or that it cannot."""
        counted = 0

        def job_settings() -> bool:
            nonlocal counted
            done = sum(kind in one.said or one.trouble is not None or one.loss is not None for one in self.agents)
            advance(done - counted)
            counted = done
            return done == len(self.agents)

        if not await self.until(job_settings, timeout_s):
            for agent in self.live:
                if kind not in agent.said and agent.trouble is None:
                    self.lose(agent, f"no answer within {timeout_s:g} s")


def _reached(agents: Sequence[AgentHandle]) -> list[str]:
    """For each host an address by which the others find their way to it."""
    addresses = [str(one.said["hello"]["address"] or one.name) for one in agents]
    far = [address for one, address in zip(agents, addresses, strict=True) if not one.host.is_here]
    return [
        address_towards(far[0]) if far and one.host.is_here else address
        for one, address in zip(agents, addresses, strict=True)
    ]


def _allow_many_files() -> None:
    """Three pipes a host: the usual limit of a thousand is not enough for five hundred."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
