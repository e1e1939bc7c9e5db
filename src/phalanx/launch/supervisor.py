"""The supervisor of a job: starts its roles, watches them, restarts lost ones, and ends everything.

It starts in two phases: first every agent chooses addresses for its roles; when all are known, the roles start.
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
from phalanx.launch.agent_handle import AgentHandle
from phalanx.launch.agent_pool import AgentPool, Opener, StopNow
from phalanx.launch.control import serve_control, socket_path
from phalanx.launch.job import INPUT, MASTER, PYTHON, Job, listeners, rendezvous_files, role_of, variables_of
from phalanx.launch.messages import GRACE_S, Argument
from phalanx.launch.output import last_lines
from phalanx.launch.placement import DedicatedHosts, Placement, capacity, place
from phalanx.launch.policy import HELPERS, Continue, End, LostRole, NewGroup, Restart, cause_of
from phalanx.launch.record import STOPPED_BY_USER, JobRecord, RecordFile
from phalanx.launch.role_table import FIRST, RoleTable
from phalanx.launch.run_files import CODE, CONFIG, SMALL
from phalanx.launch.screen import Screen
from phalanx.launch.transfer import Transfer
from phalanx.runs.folder import log_path

ROOT_CAUSE_S = 1.5  # after a failure, for others to report theirs: the first report is not always the first failure
BLAMED_S = 5.0  # for a role that others say is lost, and whose process is there, to end
EXIT_S = 20.0  # for roles to exit by themselves: survivors of a lost worker, which save; and at the end of the job
STOP_NOW_GRACE_S = 0.5
RECORD_S = 2.0


class JobSupervisor:
    """Runs one job. `opener` opens the channel to each agent."""

    def __init__(self, job: Job, agents: Sequence[AgentHandle], opener: Opener, screen: Screen) -> None:
        self._job, self._screen = job, screen
        self._roles = RoleTable(job.logs, screen)
        self._pool = AgentPool(agents, opener, screen, self._roles.on_event)
        self._transfer = Transfer(job.run, self._pool.wait_until, screen.megabytes)
        self._record = JobRecord(job.id, job.command, job.launcher, str(job.run.absolute()))
        self._record.logs = str(job.logs.absolute()) if job.log_dir else ""
        self._file = RecordFile(self._record)
        self._with_run_folder: list[AgentHandle] = []  # agents whose host has the run folder
        self._addresses: dict[str, str] = {}
        self._request = job.request  # of the current group
        self._stop: signal.Signals | None = None
        self._stop_sent = False

    async def run(self) -> int:
        """Run the job. Returns its exit code; none of its processes is alive then."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop, number)
        path = socket_path(self._job.id)
        self._record.socket = str(path)
        self._file.write()
        background = [asyncio.create_task(self._pool.watch()), asyncio.create_task(self._write_record())]
        code, grace_s = EXIT_OURS, GRACE_S
        try:
            async with serve_control(path, self._answer):
                code = await self._supervise()
        except StopNow:
            code, grace_s = 128 + (self._stop or signal.SIGTERM), STOP_NOW_GRACE_S
            self._screen.warn("stopping all processes now")
        except UserError as error:
            self._record.cause, code = error.what, EXIT_USER
            raise
        finally:
            await self._end(grace_s)
            for task in background:
                task.cancel()
            self._roles.close()
            self._screen.close()
            self._roles.refresh(self._job.run)  # the last step may be newer than the last refresh
            self._record.state, self._record.exit_code, self._record.ended = "ended", code, time.time()
            with contextlib.suppress(UserError):  # the error may be that nothing can be written
                self._file.write()
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """First call: workers save and stop. Second call, or before anything runs: everything ends at once."""
        self._pool.stop_now = self._stop is not None or self._record.state == "starting"
        self._stop = self._stop or number
        self._pool.changed()

    async def _supervise(self) -> int:
        began = time.monotonic()
        await self._pool.open()
        await self._pool.prepare(self._job)
        first = self._run_agent()
        if not first.shared:
            self._record.run_on = f"{first.name}:{first.events['ready']['run']}"
        if self._job.at_step is not None:
            await self._transfer.rewind(first, self._pool.live, self._job.at_step)
        elif self._job.resumes:
            await self._transfer.spread(first, self._pool.live)
        await self._find_run_folder(first)
        await self._place_roles(self._pool.agents, self._job.counts, self._job.dedicated)
        hosts, roles = len(self._pool.agents), len(self._roles.placements)
        ready = f"{hosts} host{'s' * (hosts != 1)} ready in {time.monotonic() - began:.1f} s"
        self._screen.info(f"{ready}; starting {roles} process{'es' * (roles != 1)}")
        self._start_all(self._job.request)
        self._record.state = "running"
        return await self._watch()

    def _run_agent(self) -> AgentHandle:
        """The agent of trainer 0's first host, which has the run folder."""
        dedicated = self._job.dedicated.hosts
        return next(agent for number, agent in enumerate(self._pool.agents) if number not in dedicated)

    async def _find_run_folder(self, first: AgentHandle) -> None:
        """Find out which hosts have the run folder: the evaluator reads and writes there."""
        if not self._job.counts.get("evaluator"):
            return
        self._with_run_folder = await self._transfer.sharing(first, self._pool.live)
        named = self._job.dedicated.evaluator
        if named is not None and self._pool.agents[named] not in self._with_run_folder:
            host, run = self._pool.agents[named].name, first.events["ready"]["run"]
            raise UserError(
                f"the evaluator cannot run on {host}",
                why=f"checkpoints are written to {run} on {first.name}, and {host} does not share that disk",
                remedy="choose a run folder on a shared disk with --out, or leave --evaluator-on out: the evaluator "
                f"then runs on {first.name}",
            )

    # Starting

    async def _place_roles(
        self, agents: Sequence[AgentHandle], counts: Mapping[RoleKind, int], dedicated: DedicatedHosts
    ) -> None:
        """Place every role, and get the addresses of those that listen."""
        usable = [number for number, agent in enumerate(agents) if agent in self._with_run_folder]
        placements = place([agent.host for agent in agents], counts, dedicated, evaluator_hosts=usable)
        self._roles.assign(placements, agents)
        self._record.roles = list(self._roles.records.values())
        self._addresses = await self._pool.listen(listeners(placements), rendezvous_files(placements), self._job)

    def _start_all(self, request: Mapping[str, Any]) -> None:
        self._request = request
        for name in self._roles.placements:
            self._start(name)

    def _start(self, name: str) -> None:
        self._roles.starting(name)
        terminal = self._roles.has_terminal(name)
        self._send_start(
            name, self._roles.agents[name], self._job.argv, self._roles.placements[name], terminal=terminal
        )

    def _send_start(
        self, name: str, agent: AgentHandle, argv: Sequence[Argument], placement: Placement, *, terminal: bool
    ) -> None:
        log = log_path(self._job.logs, name).absolute() if terminal else None
        role = role_of(placement, self._addresses, self._job, Path(agent.events["ready"]["run"]), log)
        agent.send(
            {
                "request": "start",
                "role": name,
                "argv": list(argv),
                "input": {"role": role_to_data(role), "request": self._request},
                "environment": variables_of(role, self._job, agent.events["listening"]["iface"]),
                "release_ports": [name, MASTER] if name == FIRST else [name],
                "terminal": terminal,
            }
        )

    # Watching

    async def _watch(self) -> int:
        """Watch until the trainers have ended, or the job cannot continue."""
        while True:
            if self._pool.stop_now:
                raise StopNow
            self._pool.raise_errors()
            self._send_stop()
            if self._roles.lost():
                code = await self._recover()
                if code is not None:
                    return code
            elif self._roles.trainers_ended():
                code = max(record.code or 0 for record in self._roles.trainers())
                await self._end_helpers()
                if self._stop is not None:
                    self._screen.info("job stopped")
                    await self._show_resume(self._screen.info)
                elif code == 0:
                    self._screen.info(f"job finished in {time.time() - self._record.began:.0f} s")
                return code
            elif self._roles.too_late():
                await self._end_late_trainers()
            else:
                await self._pool.wait_until(self._needs_action, 1.0)

    def _needs_action(self) -> bool:
        stop_waits = self._stop is not None and not self._stop_sent
        waits = stop_waits or bool(self._roles.lost()) or bool(self._roles.too_late())
        return waits or self._roles.trainers_ended()

    async def _end_late_trainers(self) -> None:
        """A restarted trainer of an async job that comes when the others have finished finds no server. It did nothing,
        so nothing is lost; but it would wait for the servers, and then fail."""
        await self._pool.wait_until(lambda: bool(self._roles.lost()) or not self._roles.too_late(), EXIT_S)
        late = self._roles.too_late()
        await self._pool.end_roles(lambda agent: [name for name in late if self._roles.agents[name] is agent])
        for name in late:
            self._screen.info(f"{name} came back after training had finished; it is not needed")
            self._roles.records[name].state, self._roles.records[name].code = "ended", 0

    def _send_stop(self) -> None:
        if self._stop is None or self._stop_sent:
            return
        self._stop_sent = True
        self._screen.info(f"{self._stop.name}: workers save a checkpoint and stop; repeat to stop at once")
        for agent in self._pool.live:
            names = [record.name for record in self._roles.trainers() if self._roles.agents[record.name] is agent]
            agent.send({"request": "signal", "roles": names, "signal": int(self._job.stop_with or self._stop)})

    async def _recover(self) -> int | None:
        """Do what the policy decides about lost roles. Returns an exit code if the job ends."""
        if all(role.code is not None for role in self._roles.lost()):  # a lost host already explains the rest
            await self._pool.wait_until(self._roles.trainers_ended, ROOT_CAUSE_S)
        lost = [*self._roles.lost(), *await self._silent_roles()]
        if self._stop is not None:
            return await self._report(cause_of(lost))
        world = len(self._roles.trainers())
        match self._job.policy.decide(lost, world, self._capacity()):
            case End(cause):
                return await self._report(cause)
            case Restart(failed):
                for role in failed:
                    self._tell(f"{role.name} on {role.host} {role.how}; restarting it, the others continue")
                    self._roles.agents[role.name] = self._agent_for(role.name)
                    self._start(role.name)
            case Continue(failed):
                for role in failed:
                    self._tell(f"{role.name} on {role.host} {role.how}; the others continue without it")
                    self._roles.records[role.name].state = "lost"
                    if role.kind == "trainer":
                        self._declare_lost(role.rank)
            case NewGroup(cause, new_world):
                return await self._restart_group(cause, world, new_world)
        return None

    def _warn_of(self, fault: str) -> None:
        self._screen.warn(fault)
        self._record.add_fault(fault)

    def _tell(self, fault: str) -> None:
        """Warn of a fault that the job survives; if the first trainer draws on this terminal, it does that."""
        told = not (self._screen.is_shared and self._roles.first_is_live())
        if told:
            self._screen.warn(fault)
        self._record.add_fault(fault, told=told)

    async def _silent_roles(self) -> list[LostRole]:
        """The roles that made others end by their silence. Their hosts say what keeps them from running.

        They are killed: a role that continues after the others have ended would only disturb.
        """
        if not self._roles.blamed():
            return []
        hindrances = await self._pool.inspect()
        if not hindrances.keys() & self._roles.blamed():  # it may be about to end
            await self._pool.wait_until(lambda: not self._roles.blamed(), BLAMED_S)
        found = [(name, hindrances[name]) for name in self._roles.blamed() if name in hindrances]
        for name, _ in found:
            self._roles.agents[name].send({"request": "signal", "roles": [name], "signal": int(signal.SIGKILL)})
        return [self._roles.silent(name, hindrance) for name, hindrance in found]

    def _capacity(self) -> int | None:
        """How many trainers the live hosts take."""
        dedicated = [self._pool.agents[number] for number in self._job.dedicated.hosts]
        return capacity([agent.host for agent in self._pool.live if agent not in dedicated])

    def _agent_for(self, name: str) -> AgentHandle:
        """Where to restart a role: on its host, or else on the live host with the fewest roles."""
        if self._roles.agents[name].live:
            return self._roles.agents[name]
        is_evaluator = self._roles.placements[name].kind == "evaluator"
        usable = [agent for agent in self._with_run_folder if agent.live] if is_evaluator else []
        return min(usable or self._pool.live, key=lambda agent: len(self._roles.on_agent(agent)))

    def _declare_lost(self, rank: int) -> None:
        """Tell the parameter servers not to wait for a trainer, from a host that can connect to them."""
        argv: list[Argument] = [PYTHON, "-m", "phalanx.launch.declare_lost", INPUT, str(rank)]
        agent, placement = self._roles.agents[FIRST], self._roles.placements[FIRST]
        self._send_start(f"notice-{rank}", agent, argv, placement, terminal=False)

    async def _restart_group(self, cause: LostRole, world: int, new_world: int) -> int | None:
        """End all roles, and restart them from the last checkpoint as a new group, perhaps a smaller one."""
        size = f"{new_world} of {world}" if new_world < world else str(world)
        self._warn_of(f"{cause.name} on {cause.host} {cause.how}; restarting as a new group with {size} workers")
        await self._pool.wait_until(self._roles.trainers_ended, EXIT_S)
        live, first = self._pool.live, self._run_agent()
        if not first.live and not all(agent.shared for agent in live):
            self._screen.warn(f"cannot restart: the run folder was on {first.name}, which is lost")
            return await self._report(cause)
        await self._pool.end_roles(self._roles.on_agent)
        source = first if first.live else live[0]
        saved = await self._transfer.spread(source, live)
        await self._place_roles(live, {**self._job.counts, "trainer": new_world}, self._dedicated_among(live))
        config = await self._transfer.read_text(source, CONFIG) if saved else None
        self._start_all(self._job.new_group_request(new_world, config))
        return None

    def _dedicated_among(self, live: Sequence[AgentHandle]) -> DedicatedHosts:
        """The dedicated hosts, as numbers among the live ones."""
        numbers = {self._pool.agents.index(agent): number for number, agent in enumerate(live)}
        dedicated = self._job.dedicated
        servers = tuple(numbers[number] for number in dedicated.servers if number in numbers)
        return DedicatedHosts(servers, None if dedicated.evaluator is None else numbers.get(dedicated.evaluator))

    # Ending

    async def _report(self, cause: LostRole) -> int:
        """Show which role failed first, where and how, its log, and how to resume."""
        name, said = cause.name, f"{cause.name} on {cause.host} {cause.how}"
        if cause.is_survivor and cause.lost in self._roles.agents:  # the network may be cut, or it runs again
            name, host = cause.lost, self._roles.agents[cause.lost].name
            said = f"{name} on {host} was lost, as {cause.name} on {cause.host} says"
        log = log_path(self._job.logs, name)
        ending = last_lines(log)
        self._record.cause = f"{said}: {cause.error}" if cause.error else said
        self._warn_of(f"{self._record.cause}; the job ends")
        if self._roles.has_terminal(name):  # its last lines are on this terminal
            self._screen.warn(f"log: {log}")
        else:
            self._screen.warn(f"last lines of {log}:" if ending else f"{log} is empty")
            for line in ending:
                self._screen.warn(f"  {line}")
        await self._show_resume(self._screen.warn)
        return EXIT_USER if cause.code == EXIT_USER else EXIT_OURS

    async def _show_resume(self, show: Callable[[str], None]) -> None:
        """Show the command that resumes the run, if it has a checkpoint."""
        first = self._run_agent()
        with contextlib.suppress(UserError):
            if (await self._transfer.saved(first if first.live else None)).files:
                head, launched, _ = self._job.command.partition(" -- ")
                command = f"{head} -- train" if launched else "phalanx train"
                show(f"to resume from the last checkpoint: {command} --resume {self._job.run}")

    async def _end(self, grace_s: float) -> None:
        """End all processes of the job, and copy logs and results here."""
        self._pool.stop_now = False
        await self._pool.end_roles(lambda agent: None, grace_s)
        with contextlib.suppress(UserError):  # a lost host has nothing to copy
            await self._copy_results()
        await self._pool.close()
        if self._record.run_on and self._record.state == "running":
            self._screen.info(
                f"checkpoints are on {self._record.run_on}; logs, events and summary also in {self._job.run}"
            )

    async def _end_helpers(self) -> None:
        """When the trainers have ended, stop data servers, teachers and the evaluator, and give them time.

        Parameter servers end by themselves when their trainers have left.
        """
        helpers = [name for name, one in self._roles.placements.items() if one.kind in HELPERS]
        for agent in self._pool.live:
            names = [name for name in helpers if self._roles.agents[name] is agent]
            number = int(self._job.stop_with or signal.SIGTERM)
            agent.send({"request": "signal", "roles": names, "signal": number})
        await self._pool.wait_until(lambda: self._roles.ended(helpers), EXIT_S)

    async def _copy_results(self) -> None:
        """Copy the small files of trainer 0's run folder and the servers' journals to this host."""
        for name, agent in self._roles.agents.items():
            if agent.live and not agent.shared:
                if name == FIRST:
                    code = [f"{CODE}/{file['name']}" for file in self._job.request.get("code", [])]
                    await self._transfer.fetch(agent, [*SMALL, *code])
                elif name.startswith(("server-", "data-", "teacher-")):
                    await self._transfer.fetch(agent, [f"logs/{name}.jsonl"])

    # job.json, `phalanx status` and `phalanx stop`

    async def _write_record(self) -> None:
        while True:
            self._roles.refresh(self._job.run)
            self._record.hosts = [agent.system for agent in self._pool.agents if agent.system]
            with contextlib.suppress(UserError):
                await self._file.write_aside()
            await asyncio.sleep(RECORD_S)

    def _answer(self, request: dict[str, object]) -> dict[str, object]:
        if request.get("request") == "stop":
            self._record.cause = STOPPED_BY_USER
            self.stop(signal.SIGTERM)
            return {"stopping": True}
        self._roles.refresh(self._job.run)
        return self._record.to_data()
