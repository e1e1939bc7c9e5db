"""Before the first step all workers of a job tell one another what has to be agreed on: machines, algorithms.

This comes before any exchange of gradients, since how that is set up depends on what is agreed on here.
"""

from typing import Protocol

from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import LostWorker
from phalanx.exchange.reach import open_store
from phalanx.launch.role import Role
from phalanx.launch.waiting import gather


class Meeting(Protocol):
    """Where workers meet. All of them must gather the same topics, in the same order."""

    def gather(self, topic: str, text: str) -> list[str]:
        """What every worker has to say about a topic, by rank. Who joins later is told what was said at the start."""
        ...


class Alone:
    """One worker, which has nobody to ask."""

    def gather(self, topic: str, text: str) -> list[str]:
        return [text]


class StoreMeeting:
    """The trainers of a collective job, at torch's store. Their process group is formed at the same store later."""

    def __init__(self, role: Role, timeout_s: float) -> None:
        self.role, self._timeout_s = role, timeout_s
        try:
            self.store = open_store(role, timeout_s)
        except (RuntimeError, ValueError) as error:
            raise LostWorker(
                f"trainer {role.rank} of {role.world} did not meet the others at {role.master}",
                why=str(error).split("\n")[0],
                remedy="check that all workers were started and nothing blocks the port; see their logs",
            ) from error

    def gather(self, topic: str, text: str) -> list[str]:
        self.store.set(f"{topic}/{self.role.rank}", text)
        keys = [f"{topic}/{rank}" for rank in range(self.role.world)]
        said = gather(
            self.store, self.role.name, keys, self._timeout_s, lambda key: f"trainer-{key.rpartition('/')[2]}"
        )
        return [each.decode() for each in said]


def make_meeting(exchange: ExchangeConfig, role: Role) -> Meeting:
    """Where the workers of this job meet, by its update method."""
    if exchange.method == "collective":
        return StoreMeeting(role, exchange.timeout_s)
    if exchange.method == "pserver":
        from phalanx.exchange.liveness import watch_servers
        from phalanx.exchange.pserver.gather import ServerMeeting

        return ServerMeeting(role, exchange.timeout_s, watch_servers(role, exchange))
    return Alone()
