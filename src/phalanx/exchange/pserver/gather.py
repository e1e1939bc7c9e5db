"""Texts of all workers, gathered at the first parameter server before they join; later workers get them too."""

import time
from dataclasses import dataclass, field

import zmq

from phalanx.config.role import Role
from phalanx.exchange.base import LostWorker
from phalanx.exchange.liveness import LivenessWatch
from phalanx.exchange.pserver.job import MOST_WORKERS
from phalanx.exchange.pserver.link import Link
from phalanx.exchange.pserver.members import cannot_join
from phalanx.exchange.pserver.wire import MessageKind
from phalanx.net.code import CodeReport, refuse_other_code
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.key import key_for
from phalanx.net.waiting import pauses


class ServerRendezvous:
    """The workers of a job with parameter servers, as one of them sees it."""

    def __init__(self, role: Role, timeout_s: float, watch: LivenessWatch | None = None) -> None:
        self._role, self._timeout_s, self.watch = role, timeout_s, watch
        self._code = CodeReport.of(role.name)

    def gather(self, topic: str, text: str) -> list[str]:
        """Ask again until the texts of all workers are there."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        role, key = self._role, key_for(self._role.servers, self._role.key)
        link = Link(context, 0, role.servers[0], key, role.rank, self._timeout_s, self.watch)
        try:
            return self._ask_until_complete(link, topic, text)
        finally:
            link.close()
            context.term()

    def _ask_until_complete(self, link: Link, topic: str, text: str) -> list[str]:
        deadline, pause_s = time.monotonic() + self._timeout_s, pauses()
        while True:
            mine = {"topic": topic, "world": self._role.world, "text": text}
            reply = from_json(link.request(link.header(MessageKind.GATHER), as_json(mine)).control)
            refuse_other_code(self._code, [CodeReport.from_data(reply.get("code"), f"the server at {link.address}")])
            if not reply["missing"]:
                return [str(each) for each in reply["texts"]]
            if time.monotonic() > deadline:
                missing, world = reply["missing"], self._role.world
                raise LostWorker(
                    f"{len(missing)} of {world} workers did not connect within {self._timeout_s:g} s",
                    why=f"parameter server 0 at {link.address} has no text from worker "
                    f"{', '.join(map(str, missing[:8]))}",
                    remedy="check that all workers were started, and reach that address; see logs/ in the run's folder",
                )
            time.sleep(next(pause_s))


@dataclass
class Gathered:
    """The texts at the server. A topic is complete once each of the job's workers has sent its text."""

    _texts: dict[str, dict[int, str]] = field(default_factory=dict)
    world: int = 0  # the number of workers, as the first text says

    def take(self, rank: int, sent: dict[str, object], world_of_job: int | None = None) -> tuple[list[int], list[str]]:
        """Take a worker's text. Returns the ranks that are missing, and otherwise all texts.

        Once a topic is complete, later texts change nothing. `world_of_job` is known once a worker has joined.
        """
        topic, text, world = sent.get("topic"), sent.get("text"), sent.get("world")
        if not (isinstance(topic, str) and isinstance(text, str) and isinstance(world, int)):
            raise Refused("garbage")
        if not 0 <= rank < world <= MOST_WORKERS:
            raise Refused("rank")
        self.world = world_of_job or self.world or world
        if world != self.world:
            raise cannot_join(rank, f"it was started as one of {world} workers, the others as some of {self.world}")
        texts = self._texts.setdefault(topic, {})
        if any(each not in texts for each in range(world)):
            texts[rank] = text
        missing = [each for each in range(world) if each not in texts]
        return missing, [] if missing else [texts[each] for each in range(world)]
