"""All roles of a job: where each runs, its state for job.json, its output, and which are lost."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from phalanx.launch.agent_handle import AgentHandle, explain_disconnect
from phalanx.launch.messages import Message
from phalanx.launch.output import Progress, RoleOutput, last_progress, progress_in
from phalanx.launch.placement import Placement
from phalanx.launch.policy import CLEAN_EXITS, LostRole
from phalanx.launch.record import RoleRecord
from phalanx.launch.screen import Screen
from phalanx.runs.folder import log_path

FIRST = "trainer-0"


class RoleTable:
    """By name: `placements`, `agents` (which run them) and `records`. `logs` is the folder of the roles' logs."""

    def __init__(self, logs: Path, screen: Screen) -> None:
        self._logs, self._screen = logs, screen
        self.placements: dict[str, Placement] = {}
        self.agents: dict[str, AgentHandle] = {}
        self.records: dict[str, RoleRecord] = {}
        self._exits: dict[str, Message] = {}
        self._outputs: dict[str, RoleOutput] = {}
        screen.follow(lambda: [asdict(record) for record in tuple(self.records.values())])

    def assign(self, placements: Sequence[Placement], agents: Sequence[AgentHandle]) -> None:
        """Take new placements on these agents. Roles that existed before keep their records."""
        before = self.records
        self.placements = {placement.name: placement for placement in placements}
        self.agents = {placement.name: agents[placement.host] for placement in placements}
        self.records = {name: before.get(name) or RoleRecord(name, agent.name) for name, agent in self.agents.items()}

    def starting(self, name: str) -> None:
        """Note that a role is about to start."""
        record = self.records[name]
        record.state, record.host, record.code = "starting", self.agents[name].name, None
        record.starts += 1
        if name not in self._outputs:
            self._outputs[name] = RoleOutput(log_path(self._logs, name), self._line_handler(record))

    def on_event(self, agent: AgentHandle, message: Message) -> None:
        """Take an agent's event about a role: started, output, exit."""
        record = self.records.get(message["role"])
        if record is None or self.agents[record.name] is not agent:
            return
        record.heard = time.time()
        match message["event"]:
            case "started":
                record.state, record.pid = "running", message["pid"]
            case "output":
                self._outputs[record.name].write(message["stream"], message["text"])
            case "exit":
                record.state, record.code = "ended", message["code"]
                self._exits[record.name] = message

    def on_agent(self, agent: AgentHandle) -> list[str]:
        return [name for name, other in self.agents.items() if other is agent]

    def trainers(self) -> list[RoleRecord]:
        return [self.records[name] for name, placement in self.placements.items() if placement.kind == "trainer"]

    def trainers_ended(self) -> bool:
        return all(record.state in ("ended", "lost") or not self.agents[record.name].live for record in self.trainers())

    def too_late(self) -> list[str]:
        """Trainers that run although training has finished and the servers have left: they came back too late."""
        servers = [self.records[name] for name, placement in self.placements.items() if placement.kind == "server"]
        done = [self.records[FIRST], *servers] if servers and FIRST in self.records else []
        if not done or any(record.state != "ended" or record.code != 0 for record in done):
            return []
        return [record.name for record in self.trainers() if record.state in ("starting", "running")]

    def ended(self, names: Sequence[str]) -> bool:
        return all(self.records[name].state != "running" or not self.agents[name].live for name in names)

    def lost(self) -> list[LostRole]:
        """Roles that failed or whose host is gone, and that are not handled yet."""
        lost = []
        for name, record in self.records.items():
            placement, agent = self.placements[name], self.agents[name]
            if record.state in ("starting", "running") and agent.disconnect is not None:
                why = explain_disconnect(agent, agent.disconnect)
                lost.append(LostRole(placement.kind, placement.rank, agent.name, None, why))
            elif record.state == "ended" and record.code not in CLEAN_EXITS:
                exit_ = self._exits.get(name, {})
                why, left = exit_.get("why", ""), exit_.get("ending", {})
                about = {"error": left.get("what", ""), "lost": left.get("lost", "")}
                lost.append(LostRole(placement.kind, placement.rank, agent.name, record.code, why, **about))
        return lost

    def blamed(self) -> list[str]:
        """Roles that others give as the cause of their end, and that run on a host that is there."""
        named = {role.lost for role in self.lost() if role.is_survivor}
        return [name for name, record in self.records.items() if name in named and self._runs(record)]

    def _runs(self, record: RoleRecord) -> bool:
        return record.state == "running" and self.agents[record.name].live

    def silent(self, name: str, hindrance: str) -> LostRole:
        """A role that runs and cannot: others have ended because of it, and it is to be killed."""
        placement = self.placements[name]
        return LostRole(
            placement.kind, placement.rank, self.agents[name].name, -signal.SIGKILL, hindrance=hindrance, lost=name
        )

    def has_terminal(self, name: str) -> bool:
        """Whether a role writes to the launching terminal itself."""
        return name == FIRST and self.agents[name].in_process

    def first_is_live(self) -> bool:
        """Whether the first trainer runs, and writes to the launching terminal itself."""
        return FIRST in self.agents and self.has_terminal(FIRST) and self._runs(self.records[FIRST])

    def refresh(self, run: Path) -> None:
        """Update progress and times. A first trainer with the terminal reports progress in the run's events only."""
        if FIRST in self.agents and self.has_terminal(FIRST):
            _note_progress(self.records[FIRST], last_progress(run))
        for name, agent in self.agents.items():
            if agent.live and self.records[name].state == "running":
                silent_s = 0 if agent.in_process else time.monotonic() - agent.last_message
                self.records[name].heard = time.time() - silent_s

    def close(self) -> None:
        for output in self._outputs.values():
            output.close()

    def _line_handler(self, record: RoleRecord) -> Callable[[str, str], None]:
        def handle(stream: str, line: str) -> None:
            _note_progress(record, progress_in(line))
            self._screen.role_line(record.name, record.host, stream, line)

        return handle


def _note_progress(record: RoleRecord, progress: Progress | None) -> None:
    if progress is not None:
        record.step, record.samples_per_s, record.times = progress
