"""Before the first step all workers of a job tell one another what has to be agreed on: machines, algorithms.

This comes before any exchange of gradients, since how that is set up depends on what is agreed on here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import LostWorker
from phalanx.launch.role import Role


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
        import torch.distributed as dist

        self.role = role
        # torchrun keeps a store of its own at that address, which only its environment explains.
        timeout = timedelta(seconds=timeout_s)
        place = "env://" if role.launcher == "torchrun" else f"tcp://{role.master}"
        with _peers_may_not_come(role):
            met = dist.rendezvous(place, role.rank, role.world, timeout=timeout)  # type: ignore[attr-defined]
            store, _, _ = next(iter(met))
            store.set_timeout(timeout)
        self.store: Any = store

    def gather(self, topic: str, text: str) -> list[str]:
        with _peers_may_not_come(self.role):
            self.store.set(f"phalanx/{topic}/{self.role.rank}", text)
            return [self.store.get(f"phalanx/{topic}/{rank}").decode() for rank in range(self.role.world)]


def make_meeting(exchange: ExchangeConfig, role: Role) -> Meeting:
    """Where the workers of this job meet, by its update method."""
    if exchange.method == "collective":
        return StoreMeeting(role, exchange.timeout_s)
    if exchange.method == "pserver":
        from phalanx.exchange.pserver.gather import ServerMeeting

        return ServerMeeting(role, exchange.timeout_s)
    return Alone()


@contextmanager
def _peers_may_not_come(role: Role) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise LostWorker(
            f"trainer {role.rank} of {role.world} did not meet the others at {role.master}",
            why=str(error).split("\n")[0],
            remedy="check that all workers were started and nothing blocks the port; see logs/ in the run's folder",
        ) from error
