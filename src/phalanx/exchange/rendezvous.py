"""Before the first step all workers of a job tell one another what has to be agreed on: machines, algorithms.

This comes before any exchange of gradients, since how that is set up depends on what is agreed on here.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.connectivity import open_store, trainer_of
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.net.waiting import gather

_LOOK_S = 0.02  # between looks at who has heard


class Rendezvous(Protocol):
    """Where workers meet. All of them must gather the same topics, in the same order."""

    def gather(self, topic: str, text: str) -> list[str]:
        """What every worker has to say about a topic, by rank. Who joins later is told what was said at the start."""
        ...


class LocalRendezvous:
    """The rendezvous of a job with one worker."""

    def gather(self, topic: str, text: str) -> list[str]:
        return [text]


class StoreRendezvous:
    """The trainers of a collective job, at torch's store. Their process group is formed at the same store later.

    From here on they watch one another: who is lost while others open their data, or time convolutions, is not waited
    for.
    """

    def __init__(self, role: Role, timeout_s: float, silence_s: float = ExchangeConfig().silence_s) -> None:
        self.role, self._timeout_s = role, timeout_s
        self.peers: PeerWatch | None = None
        with self._others_may_be_lost():
            self.store = open_store(role, timeout_s)
            if role.world > 1:
                self.peers = PeerWatch(self.store, role, timeout_s, silence_s)

    def gather(self, topic: str, text: str) -> list[str]:
        keys = [f"{topic}/{rank}" for rank in range(self.role.world)]
        with self._others_may_be_lost():
            self.store.set(keys[self.role.rank], text)
            told = gather(self.store, self.role.name, keys, self._timeout_s, trainer_of, self._refuse_lost)
            self._await_heard(f"heard/{topic}")
            return [each.decode() for each in told]

    def _await_heard(self, counter: str) -> None:
        """The first trainer keeps the store: what is heard may make it leave, so it stays until all have heard it."""
        self.store.add(counter, 1)
        deadline = time.monotonic() + self._timeout_s
        while self.role.rank == 0 and self.store.add(counter, 0) < self.role.world and time.monotonic() < deadline:
            self._refuse_lost()
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """No more is said here, and nobody's end is a loss."""
        if self.peers is not None:
            self.peers.close()

    def _refuse_lost(self) -> None:
        loss = self.peers.lost() if self.peers is not None else None
        if loss is not None:
            raise loss

    @contextmanager
    def _others_may_be_lost(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            loss = self.peers.known() if self.peers is not None else None
            raise loss or LostWorker(
                f"trainer {self.role.rank} of {self.role.world} did not meet the others at {self.role.master}",
                why=str(error).split("\n")[0][:300],
                remedy="check that all workers were started and nothing blocks the port; see their logs",
            ) from error


def make_rendezvous(exchange: ExchangeConfig, role: Role) -> Rendezvous:
    """Where the workers of this job meet, by its update method."""
    if exchange.method == "collective":
        return StoreRendezvous(role, exchange.timeout_s, exchange.silence_s)
    if exchange.method == "pserver":
        from phalanx.exchange.liveness import watch_servers
        from phalanx.exchange.pserver.gather import ServerRendezvous

        return ServerRendezvous(role, exchange.timeout_s, watch_servers(role, exchange))
    return LocalRendezvous()
