"""The hosts of a job, assembled: channels to all of them at once, answers awaited together, silence noticed."""

import asyncio
import contextlib
import resource
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from phalanx.errors import UserError
from phalanx.launch.channel import Channel, Loss
from phalanx.launch.job import Job, carried_variables
from phalanx.launch.messages import GRACE_S, PING_S, SILENCE_S, Message
from phalanx.launch.network import address_towards
from phalanx.launch.run_files import mark
from phalanx.launch.screen import Screen
from phalanx.launch.stations import Station, check_versions, clock_warnings, refuse_lost

HELLO_S = 60.0  # for a host to answer: a slow login, a cold disk
SETUP_S = 3600.0  # for the user's set-up command
MARGIN_S = 5.0  # for an answer beyond the time that the work takes

# Opens the channel to a station's agent, given what is to be told of messages and of its loss.
Opener = Callable[[Station, Callable[[Message], None], Callable[[Loss], None]], Awaitable[Channel]]


class EndNow(Exception):
    """Asked to end at once: nobody waits for anything any more."""


class Assembly:
    """Stations with their channels. `hear` is given what agents say about roles."""

    def __init__(
        self, stations: Sequence[Station], opener: Opener, screen: Screen, hear: Callable[[Station, Message], None]
    ) -> None:
        self.stations = list(stations)
        self._opener, self._screen, self._hear = opener, screen, hear
        self._changed = asyncio.Event()
        self.hurry = False  # whoever waits is to wait no longer

    @property
    def live(self) -> list[Station]:
        return [station for station in self.stations if station.loss is None]

    async def open(self) -> None:
        """All at once, until every agent has said hello. Any host that cannot be used is an error."""
        _allow_many_files()
        with self._screen.progress("hosts that answer:", len(self.stations)) as advance:
            opening = [asyncio.create_task(self._open(station)) for station in self.stations]
            await self._all_say("hello", HELLO_S, advance)
            for task in opening:
                task.cancel()
        refuse_lost(self.stations, "starting the agent")
        if not all(station.inner for station in self.stations):
            check_versions(self.stations)
        for warning in clock_warnings(self.stations):
            self._screen.say(f"warning: {warning}")

    async def prepare(self, job: Job) -> None:
        """Folders, files and the user's set-up command, on every host."""
        message: Message = {
            "do": "prepare",
            "mark": secrets.token_hex(8),  # who sees it in the run's folder shares that with the launching host
            "cwd": job.cwd,
            "files": dict(job.files),
            "setup": job.setup,
        }
        message["fresh"] = not job.resumes
        try:
            mark(job.run, message["mark"], "make")
            for station in self.stations:
                told = {"run": str(job.run), "environment": {}}
                if not station.inner:
                    told = {"run": job.out or str(job.run), "environment": carried_variables()}
                station.send({**message, **told})
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
        refuse_lost(self.stations, "preparing")

    async def listen(self, wanted: dict[int, list[str]], job: Job) -> dict[str, str]:
        """Have the live hosts choose where their roles will listen: an address for every name."""
        stations = self.live
        reached = _reached(stations)
        message = {"do": "listen", "iface": job.iface, "ports": list(job.ports) if job.ports else None}
        for number, station in enumerate(stations):
            station.said.pop("listening", None)
            peers = [address for other, address in enumerate(reached) if other != number]
            station.send({**message, "names": wanted.get(number, []), "peers": peers})
        await self._all_say("listening", HELLO_S)
        refuse_lost(stations, "finding a place to listen")
        return {name: place for one in stations for name, place in one.said["listening"]["places"].items()}

    async def end_roles(self, names: Callable[[Station], list[str] | None], grace_s: float = GRACE_S) -> None:
        """TERM, grace, KILL of the named roles on every host. None stands for all, and for cleaning up."""
        for station in self.live:
            station.said.pop("ended", None)
            station.send({"do": "end", "grace_s": grace_s, "roles": names(station)})
        await self.until(lambda: all("ended" in one.said for one in self.live), grace_s + MARGIN_S)

    async def close(self) -> None:
        """Say goodbye; who does not answer is let go, and ends by itself."""
        closing = [asyncio.create_task(one.channel.close()) for one in self.live if one.channel is not None]
        if closing:
            await asyncio.wait(closing, timeout=MARGIN_S)
        for station in self.stations:
            if station.channel is not None:
                station.channel.cut()

    def refuse_trouble(self) -> None:
        """Raise what went wrong on a host, or with what was heard of it, since all were ready."""
        for station in self.live:
            if station.trouble is not None:
                told = station.trouble
                raise UserError(f"{station.name}: {told.what}", why=told.why, remedy=told.remedy)

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
            for station in self.live:
                if station.inner or "hello" not in station.said:
                    continue
                if time.monotonic() - station.heard > SILENCE_S:
                    self.lose(station, f"nothing was heard of it for {SILENCE_S:g} s")
                station.send({"do": "ping"})
            await asyncio.sleep(PING_S)

    def lose(self, station: Station, why: str) -> None:
        station.loss = station.loss or Loss(None, (why,))
        if station.channel is not None:
            station.channel.cut()
        self.changed()

    async def _open(self, station: Station) -> None:
        def lose(loss: Loss) -> None:
            station.loss = station.loss or loss
            self.changed()

        try:
            station.channel = await self._opener(station, lambda message: self._take(station, message), lose)
        except UserError as error:
            station.trouble = error
            self.changed()

    def _take(self, station: Station, message: Message) -> None:
        station.heard = time.monotonic()
        kind = message["say"]
        if kind == "pong":
            return
        if kind in ("started", "out", "exit"):
            try:
                self._hear(station, message)
            except UserError as error:  # a log that cannot be written
                station.trouble = error
        elif kind == "trouble":
            station.trouble = UserError(message["what"], why=message["why"], remedy=message["remedy"])
        else:
            station.said[kind] = message
        if kind == "hello":
            station.skew_s = message["clock"] - time.time()
        self.changed()

    async def _all_say(self, kind: str, timeout_s: float, advance: Callable[[int], object] = int) -> None:
        """Until each live station has said something of this kind, or that it cannot."""
        counted = 0

        def settled() -> bool:
            nonlocal counted
            done = sum(kind in one.said or one.trouble is not None or one.loss is not None for one in self.stations)
            advance(done - counted)
            counted = done
            return done == len(self.stations)

        if not await self.until(settled, timeout_s):
            for station in self.live:
                if kind not in station.said and station.trouble is None:
                    self.lose(station, f"no answer within {timeout_s:g} s")


def _reached(stations: Sequence[Station]) -> list[str]:
    """For each host an address by which the others find their way to it."""
    addresses = [str(one.said["hello"]["address"] or one.name) for one in stations]
    far = [address for one, address in zip(stations, addresses, strict=True) if not one.host.is_here]
    return [
        address_towards(far[0]) if far and one.host.is_here else address
        for one, address in zip(stations, addresses, strict=True)
    ]


def _allow_many_files() -> None:
    """Three pipes a host: the usual limit of a thousand is not enough for five hundred."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
