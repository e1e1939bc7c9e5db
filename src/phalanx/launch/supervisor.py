"""The conductor of a job: starts its roles in two phases, watches them, mends what it may, and ends everything.

First every host's agent answers and says where its roles will listen; only when all are known does a role start.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.config.role import RoleKind, role_to_data
from phalanx.errors import EXIT_OURS, EXIT_USER, UserError
from phalanx.launch.agent_handle import AgentHandle, explain_loss
from phalanx.launch.agent_pool import AgentPool, EndNow, Opener
from phalanx.launch.control import answering, socket_path
from phalanx.launch.job import INPUT, MASTER, PYTHON, Job, listeners, role_of, variables_of
from phalanx.launch.messages import GRACE_S, Message, Word
from phalanx.launch.output import Progress, RoleOutput, last_lines, last_progress, progress_in
from phalanx.launch.placement import DedicatedHosts, Placement, place, room
from phalanx.launch.policy import POLITE, End, GoOn, Lost, Reform, Restart, cause_of
from phalanx.launch.record import ASKED, JobRecord, RoleRecord
from phalanx.launch.run_files import CODE, CONFIG, SMALL
from phalanx.launch.screen import Screen
from phalanx.launch.transfer import Transfer
from phalanx.runs.folder import log_path

SETTLE_S = 1.5  # after a failure, for others to report theirs: the first to be heard of is not always the first
LEAVE_S = 20.0  # for roles to leave by themselves: survivors of a lost peer, which save, and those that are dismissed
HURRIED_GRACE_S = 0.5
RECORD_S = 2.0
_FIRST = "trainer-0"


class JobSupervisor:
    """One job. `opener` brings an agent's channel to each station."""

    def __init__(self, job: Job, agents: Sequence[AgentHandle], opener: Opener, screen: Screen) -> None:
        self._job, self._screen = job, screen
        self._hosts = AgentPool(agents, opener, screen, self._hear)
        self._transfer = Transfer(job.run, self._hosts.until)
        self._record = JobRecord(job.id, job.command, job.launcher, str(job.run.absolute()))
        self._record.logs = str(job.logs.absolute()) if job.log_dir else ""
        self._placements: dict[str, Placement] = {}
        self._homes: dict[str, AgentHandle] = {}
        self._reach: list[AgentHandle] = []  # who reach the run's folder
        self._roles: dict[str, RoleRecord] = {}
        self._whys: dict[str, str] = {}  # of roles that could not even be started
        self._outputs: dict[str, RoleOutput] = {}
        self._places: dict[str, str] = {}
        self._request = job.request  # of the group that runs now
        self._stop: signal.Signals | None = None
        self._passed_on = False

    async def run(self) -> int:
        """All of it. Returns the job's exit code; nothing of the job is alive then."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop, number)
        path = socket_path(self._job.id)
        self._record.socket = str(path)
        self._record.write()
        beside = [asyncio.create_task(self._hosts.watch()), asyncio.create_task(self._keep_record())]
        code, grace_s = EXIT_OURS, GRACE_S
        try:
            async with answering(path, self._answer):
                code = await self._supervise()
        except EndNow:
            code, grace_s = 128 + (self._stop or signal.SIGTERM), HURRIED_GRACE_S
            self._screen.say("all roles are ended at once")
        except UserError as error:
            self._record.cause, code = error.what, EXIT_USER
            raise
        finally:
            await self._end(grace_s)
            for task in beside:
                task.cancel()
            for output in self._outputs.values():
                output.close()
            self._refresh()  # the last step may be younger than the last look
            self._record.state, self._record.exit_code, self._record.ended = "ended", code, time.time()
            with contextlib.suppress(UserError):  # what is wrong may be that nothing can be written
                self._record.write()
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Once: trainers save and end. Twice, or before anything was started: everything ends at once."""
        self._hosts.hurry = self._stop is not None or self._record.state == "starting"
        self._stop = self._stop or number
        self._hosts.changed()

    async def _supervise(self) -> int:
        began = time.monotonic()
        await self._hosts.open()
        await self._hosts.prepare(self._job)
        first = self._run_home()
        if not first.shared:
            self._record.run_on = f"{first.name}:{first.said['ready']['run']}"
        if self._job.at_step is not None:
            await self._transfer.go_back(first, self._hosts.live, self._job.at_step)
        elif self._job.resumes:
            await self._transfer.spread(first, self._hosts.live)
        await self._find_reach(first)
        await self._place_roles(self._hosts.agents, self._job.wanted, self._job.apart)
        hosts, roles = len(self._hosts.agents), len(self._placements)
        self._screen.tell(f"{hosts} hosts are ready after {time.monotonic() - began:.1f} s; {roles} roles start")
        self._start_all(self._job.request)
        self._record.state = "running"
        return await self._watch()

    def _run_home(self) -> AgentHandle:
        """Trainer 0's first host: the run's folder is there."""
        apart = self._job.apart.hosts
        return next(agent for number, agent in enumerate(self._hosts.agents) if number not in apart)

    async def _find_reach(self, first: AgentHandle) -> None:
        """Which hosts reach the run's folder: the evaluator reads and writes there."""
        if not self._job.wanted.get("evaluator"):
            return
        self._reach = await self._transfer.reaching(first, self._hosts.live)
        named = self._job.apart.evaluator
        if named is not None and self._hosts.agents[named] not in self._reach:
            host, run = self._hosts.agents[named].name, first.said["ready"]["run"]
            raise UserError(
                f"the evaluator cannot run on {host}",
                why=f"{run} on {first.name}, where checkpoints are written, is on no disk that {host} shares",
                remedy="choose a run's folder on a disk that both share with --out, or leave --evaluator-on out: it "
                f"then runs on {first.name}",
            )

    # Starting

    async def _place_roles(
        self, agents: Sequence[AgentHandle], wanted: Mapping[RoleKind, int], apart: DedicatedHosts
    ) -> None:
        """Give every role a place, and learn where those that listen will."""
        reach = [number for number, agent in enumerate(agents) if agent in self._reach]
        placements = place([agent.host for agent in agents], wanted, apart, reach=reach)
        before = self._roles
        self._placements = {placement.name: placement for placement in placements}
        self._homes = {placement.name: agents[placement.host] for placement in placements}
        self._roles = {name: before.get(name) or RoleRecord(name, home.name) for name, home in self._homes.items()}
        self._record.roles = list(self._roles.values())
        self._places = await self._hosts.listen(listeners(placements), self._job)

    def _start_all(self, request: Mapping[str, Any]) -> None:
        self._request = request
        for name in self._placements:
            self._start(name)

    def _start(self, name: str) -> None:
        record, home = self._roles[name], self._homes[name]
        record.state, record.host, record.code = "starting", home.name, None
        record.starts += 1
        if name not in self._outputs:
            self._outputs[name] = RoleOutput(log_path(self._job.logs, name), self._line_taker(record))
        self._send_start(name, home, self._job.argv, self._placements[name], shown=self._shown(name))

    def _shown(self, name: str) -> bool:
        """Whether a role has the terminal to itself."""
        return name == _FIRST and self._homes[name].inner

    def _send_start(
        self, name: str, home: AgentHandle, argv: Sequence[Word], placement: Placement, *, shown: bool
    ) -> None:
        log = log_path(self._job.logs, name).absolute() if shown else None
        role = role_of(placement, self._places, self._job, Path(home.said["ready"]["run"]), log)
        home.send(
            {
                "do": "start",
                "role": name,
                "argv": list(argv),
                "input": {"role": role_to_data(role), "request": self._request},
                "environment": variables_of(role, self._job, home.said["listening"]["iface"]),
                "releases": [name, MASTER] if name == _FIRST else [name],
                "shown": shown,
            }
        )

    # Hearing

    def _hear(self, agent: AgentHandle, message: Message) -> None:
        record = self._roles.get(message["role"])
        if record is None or self._homes[record.name] is not agent:
            return
        record.heard = time.time()
        match message["say"]:
            case "started":
                record.state, record.pid = "running", message["pid"]
            case "out":
                self._outputs[record.name].take(message["stream"], message["text"])
            case "exit":
                record.state, record.code = "ended", message["code"]
                self._whys[record.name] = message.get("why", "")

    def _line_taker(self, record: RoleRecord) -> Callable[[str, str], None]:
        def take(stream: str, line: str) -> None:
            self._note_progress(record, progress_in(line))
            self._screen.line(record.name, record.host, stream, line)

        return take

    def _note_progress(self, record: RoleRecord, progress: Progress | None) -> None:
        if progress is not None:
            record.step, record.samples_per_s, record.times = progress

    # Watching

    async def _watch(self) -> int:
        """Until the trainers are done, or the job cannot go on."""
        while True:
            if self._hosts.hurry:
                raise EndNow
            self._hosts.refuse_trouble()
            self._pass_stop_on()
            if self._lost():
                code = await self._mend()
                if code is not None:
                    return code
            elif self._trainers_left():
                code = max(record.code or 0 for record in self._trainers())
                await self._dismiss()
                if self._stop is not None:
                    self._screen.tell(f"the job is stopped{await self._way_on()}")
                elif code == 0:
                    self._screen.tell(f"the job has succeeded after {time.time() - self._record.began:.0f} s")
                return code
            else:
                await self._hosts.until(self._something, 1.0)

    def _something(self) -> bool:
        waiting = self._stop is not None and not self._passed_on
        return waiting or bool(self._lost()) or self._trainers_left()

    def _trainers(self) -> list[RoleRecord]:
        return [self._roles[name] for name, placement in self._placements.items() if placement.kind == "trainer"]

    def _trainers_left(self) -> bool:
        return all(
            record.state in ("ended", "lost") or not self._homes[record.name].live for record in self._trainers()
        )

    def _pass_stop_on(self) -> None:
        if self._stop is None or self._passed_on:
            return
        self._passed_on = True
        self._screen.tell(f"{self._stop.name}: trainers save and end; once more ends everything at once")
        for agent in self._hosts.live:
            names = [record.name for record in self._trainers() if self._homes[record.name] is agent]
            agent.send({"do": "signal", "roles": names, "signal": int(self._job.stop_with or self._stop)})

    def _lost(self) -> list[Lost]:
        """Roles that ended badly, or whose host is gone, and that nothing was done about yet."""
        found = []
        for name, record in self._roles.items():
            placement, home = self._placements[name], self._homes[name]
            if record.state in ("starting", "running") and home.loss is not None:
                found.append(Lost(placement.kind, placement.rank, home.name, None, explain_loss(home, home.loss)))
            elif record.state == "ended" and record.code not in POLITE:
                found.append(Lost(placement.kind, placement.rank, home.name, record.code, self._whys.get(name, "")))
        return found

    async def _mend(self) -> int | None:
        """Do what the policy says about what was lost. An exit code, where that is the end."""
        if all(one.code is not None for one in self._lost()):  # a host that is gone explains the rest
            await self._hosts.until(self._trainers_left, SETTLE_S)
        lost = self._lost()
        if self._stop is not None:
            return await self._report(cause_of(lost))
        world = len(self._trainers())
        match self._job.policy.judge(lost, world, self._room()):
            case End(cause):
                return await self._report(cause)
            case Restart(gone):
                for one in gone:
                    self._screen.say(f"{one.name} on {one.host} {one.how}; the others go on, and it is started anew")
                    self._homes[one.name] = self._home_for(one.name)
                    self._start(one.name)
            case GoOn(gone):
                for one in gone:
                    self._screen.say(f"{one.name} on {one.host} {one.how}; the others go on without it")
                    self._roles[one.name].state = "lost"
                    if one.kind == "trainer":
                        self._declare_lost(one.rank)
            case Reform(cause, new_world):
                return await self._reform(cause, world, new_world)
        return None

    def _room(self) -> int | None:
        """For how many trainers there is a place on hosts that live."""
        apart = [self._hosts.agents[number] for number in self._job.apart.hosts]
        return room([agent.host for agent in self._hosts.live if agent not in apart])

    def _home_for(self, name: str) -> AgentHandle:
        """Where a role is started anew: where it was, or on the live host with the fewest roles."""
        if self._homes[name].live:
            return self._homes[name]
        homes = list(self._homes.values())
        reach = self._reach if self._placements[name].kind == "evaluator" else self._hosts.live
        live = [agent for agent in reach if agent.live] or self._hosts.live
        return min(live, key=lambda agent: sum(home is agent for home in homes))

    def _declare_lost(self, rank: int) -> None:
        """Have the servers told that nobody need wait for a trainer, from a host that reaches them."""
        argv: list[Word] = [PYTHON, "-m", "phalanx.launch.declare_lost", INPUT, str(rank)]
        self._send_start(f"notice-{rank}", self._homes[_FIRST], argv, self._placements[_FIRST], shown=False)

    async def _reform(self, cause: Lost, world: int, new_world: int) -> int | None:
        """All roles end, and start anew from the last checkpoint, perhaps as fewer."""
        how_many = f"{new_world} of {world}" if new_world < world else str(world)
        self._screen.say(f"{cause.name} on {cause.host} {cause.how}; the group forms anew with {how_many} workers")
        await self._hosts.until(self._trainers_left, LEAVE_S)
        live, first = self._hosts.live, self._run_home()
        if not first.live and not all(agent.shared for agent in live):
            self._screen.say(f"it cannot: the run's folder was on {first.name}, which is lost")
            return await self._report(cause)
        await self._hosts.end_roles(lambda agent: [n for n, home in self._homes.items() if home is agent])
        keeper = first if first.live else live[0]
        saved = await self._transfer.spread(keeper, live)
        await self._place_roles(live, {**self._job.wanted, "trainer": new_world}, self._apart_of(live))
        config = await self._transfer.read_text(keeper, CONFIG) if saved else None
        self._start_all(self._job.again(new_world, config))
        return None

    def _apart_of(self, live: Sequence[AgentHandle]) -> DedicatedHosts:
        """The hosts without trainers, as numbers among those that are left."""
        numbers = {self._hosts.agents.index(agent): number for number, agent in enumerate(live)}
        apart = self._job.apart
        servers = tuple(numbers[number] for number in apart.servers if number in numbers)
        return DedicatedHosts(servers, None if apart.evaluator is None else numbers.get(apart.evaluator))

    # Ending

    async def _report(self, cause: Lost) -> int:
        """Name who failed first, where and how, its log, and the way on."""
        log = log_path(self._job.logs, cause.name)
        ending = last_lines(log)
        error = next((line.removeprefix("error") for line in reversed(ending) if line.startswith("error: ")), "")
        self._record.cause = f"{cause.name} on {cause.host} {cause.how}{error if cause.code == EXIT_USER else ''}"
        self._screen.say(f"{self._record.cause}; the job ends{await self._way_on()}")
        if self._shown(cause.name):  # its last words are on the same screen
            self._screen.say(f"its log is {log}")
        else:
            self._screen.say(f"its log, {log}, " + ("ends:" if ending else "is empty"))
            for line in ending:
                self._screen.say(f"  {line}")
        return EXIT_USER if cause.code == EXIT_USER else EXIT_OURS

    async def _way_on(self) -> str:
        first = self._run_home()
        with contextlib.suppress(UserError):
            if (await self._transfer.saved(first if first.live else None)).files:
                head, launched, _ = self._job.command.partition(" -- ")
                command = f"{head} -- train" if launched else "phalanx train"
                return f"; saved checkpoints are valid, go on with {command} --resume {self._job.run}"
        return ""

    async def _end(self, grace_s: float) -> None:
        """Whatever happened: nothing of the job outlives this, and what can be known of it is here."""
        self._hosts.hurry = False
        await self._hosts.end_roles(lambda agent: None, grace_s)
        with contextlib.suppress(UserError):  # a host that is gone has nothing to give
            await self._bring_home()
        await self._hosts.close()
        if self._record.run_on and self._record.state == "running":
            self._screen.tell(
                f"checkpoints are on {self._record.run_on}; logs, events and summary also in {self._job.run}"
            )

    async def _dismiss(self) -> None:
        """When the trainers are done, have those end that wait to be told so; nobody is in a hurry then.

        They are told by a signal that they hear. Parameter servers see for themselves that their trainers have left.
        """
        waiting = [name for name, placement in self._placements.items() if placement.kind in ("data", "evaluator")]
        for agent in self._hosts.live:
            names = [name for name in waiting if self._homes[name] is agent]
            agent.send({"do": "signal", "roles": names, "signal": int(self._job.stop_with or signal.SIGTERM)})
        await self._hosts.until(
            lambda: all(self._roles[name].state != "running" or not self._homes[name].live for name in waiting), LEAVE_S
        )

    async def _bring_home(self) -> None:
        """The run's folder is on trainer 0's host; what is small of it, and servers' journals, come here."""
        for name, home in self._homes.items():
            if home.live and not home.shared:
                if name == _FIRST:
                    code = [f"{CODE}/{file['name']}" for file in self._job.request.get("code", [])]
                    await self._transfer.fetch(home, [*SMALL, *code])
                elif name.startswith(("server-", "data-")):
                    await self._transfer.fetch(home, [f"logs/{name}.jsonl"])

    # Being asked

    async def _keep_record(self) -> None:
        while True:
            self._refresh()
            with contextlib.suppress(UserError):
                self._record.write()
            await asyncio.sleep(RECORD_S)

    def _refresh(self) -> None:
        """A first trainer that has the terminal to itself tells how far it is in the run's events."""
        if _FIRST in self._homes and self._shown(_FIRST):
            self._note_progress(self._roles[_FIRST], last_progress(self._job.run))
        for name, home in self._homes.items():
            if home.live and self._roles[name].state == "running":
                self._roles[name].heard = time.time() - (0 if home.inner else time.monotonic() - home.heard)

    def _answer(self, request: dict[str, object]) -> dict[str, object]:
        if request.get("ask") == "stop":
            self._record.cause = ASKED
            self.stop(signal.SIGTERM)
            return {"stopping": True}
        self._refresh()
        return self._record.told()
