"""Before the first step all workers of a job exchange what they have to agree on: machines, settings, algorithms.

This comes before any exchange of gradients, which depends on what they agree on.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.connectivity import open_store, trainer_of
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.net.code import CodeReport, refuse_other_code
from phalanx.net.waiting import gather

_LOOK_S = 0.02  # between looks at which workers have read


class Rendezvous(Protocol):
    """Exchanges texts between workers. All of them must gather the same topics, in the same order."""

    def gather(self, topic: str, text: str) -> list[str]:
        """Every worker's text on a topic, by rank. A worker that joins later gets the texts from the start."""
        ...


def compare_code(rendezvous: Rendezvous, role: Role) -> None:
    """Refuse workers that run another version of Phalanx. All workers call this, and all raise the error."""
    mine = CodeReport.of(role.name)
    texts = rendezvous.gather("code", json.dumps(mine.to_data()))
    first, *others = [CodeReport.from_data(json.loads(text), f"trainer-{rank}") for rank, text in enumerate(texts)]
    refuse_other_code(first, [*others, mine])  # who joins later is none of the others


class LocalRendezvous:
    """The rendezvous of a job with one worker."""

    def gather(self, topic: str, text: str) -> list[str]:
        return [text]


class StoreRendezvous:
    """The workers of a collective job, at torch's store. Their process group is formed at the same store later.

    First they compare their code, which decides what everything after it means. From then on they watch one another:
    none waits for a worker that is lost while others open their data or time convolutions.
    """

    def __init__(self, role: Role, timeout_s: float, silence_s: float = ExchangeConfig().silence_s) -> None:
        self.role, self._timeout_s = role, timeout_s
        self.peers: PeerWatch | None = None
        with self._failing_as_lost():
            self.store = open_store(role, timeout_s)
            if role.world > 1:
                compare_code(self, role)
                self.peers = PeerWatch(self.store, role, timeout_s, silence_s)

    def gather(self, topic: str, text: str) -> list[str]:
        keys = [f"{topic}/{rank}" for rank in range(self.role.world)]
        with self._failing_as_lost():
            self.store.set(keys[self.role.rank], text)
            texts = gather(self.store, self.role.name, keys, self._timeout_s, trainer_of, self._refuse_lost)
            self._await_readers(f"heard/{topic}")
            return [each.decode() for each in texts]

    def _await_readers(self, counter: str) -> None:
        """Rank 0 has the store: the texts may make it end, so it stays until all workers have read them."""
        self.store.add(counter, 1)
        deadline = time.monotonic() + self._timeout_s
        while self.role.rank == 0 and self.store.add(counter, 0) < self.role.world and time.monotonic() < deadline:
            self._refuse_lost()
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End the rendezvous and its watch: from now on the end of a worker is no loss."""
        if self.peers is not None:
            self.peers.close()

    def _refuse_lost(self) -> None:
        loss = self.peers.lost() if self.peers is not None else None
        if loss is not None:
            raise loss

    @contextmanager
    def _failing_as_lost(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            loss = self.peers.known() if self.peers is not None else None
            raise loss or LostWorker(
                f"{self.role.name} of {self.role.world} workers could not join the others at {self.role.master}",
                why=str(error).split("\n")[0][:300],
                remedy="check that all workers were started and nothing blocks the port; see their logs",
            ) from error


def make_rendezvous(exchange: ExchangeConfig, role: Role) -> Rendezvous:
    """The rendezvous of this job's workers, by its update method."""
    if exchange.method == "collective":
        return StoreRendezvous(role, exchange.timeout_s, exchange.silence_s)
    if exchange.method == "pserver":
        from phalanx.exchange.liveness import watch_servers
        from phalanx.exchange.pserver.gather import ServerRendezvous

        rendezvous = ServerRendezvous(role, exchange.timeout_s, watch_servers(role, exchange))
        compare_code(rendezvous, role)
        return rendezvous
    return LocalRendezvous()
