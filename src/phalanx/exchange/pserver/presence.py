"""Which workers are connected: each has a connection to the server whose identity says its rank.

Once a worker has joined, the connection that it joined by counts: its identity is its process's alone. One that was
frozen and wakes up has the same rank as the process that replaced it, and takes over the connection that says it.

zmq closes a connection that is silent. The server checks one by sending an empty message, which fails if it is closed.
"""

import math
from collections.abc import Iterable

import zmq

from phalanx.exchange.liveness import grace_s, presence_id

_FEW_LOOKS = 4  # 1.5 to 2 s: a worker tries to connect again after 0.1, 0.3 and 0.7 s


class Presence:
    """Checked every `look_s`. Checks are counted, not seconds: while the server was stopped, workers did not fail."""

    def __init__(self, socket: "zmq.Socket[bytes]", key: str, silence_s: float, look_s: float) -> None:
        self._socket, self._key, self.silence_s = socket, key, silence_s
        self._looks = 1 + max(1, math.ceil(grace_s(silence_s) / look_s))  # the first only begins the grace
        self._joined: dict[int, bytes] = {}  # by rank: the connection that it joined by
        self._missed: dict[int, int] = {}  # of workers that have been connected: failed checks in a row
        self._gone: dict[int, None] = {}  # ranks that are gone, in that order

    def expect(self, rank: int, joined_by: bytes | None = None) -> None:
        """It has sent something, or joined: so it is alive, whether or not it was checked yet."""
        if joined_by is not None:
            self._joined[rank] = joined_by
        self._found(rank)

    def left(self, rank: int) -> None:
        """It is no longer a member: the connection that it joined by says nothing any more."""
        self._joined.pop(rank, None)

    def gone(self, ranks: Iterable[int], *, at_once: bool = False) -> list[int]:
        """Check. The ranks that were connected, and have not been for a while, in the order in which they were lost.

        With `at_once`, while a server is told to end, few checks are enough. But a connection that broke may come back,
        and in sync mode a loss would end the job before the others have saved.
        """
        looks = min(_FEW_LOOKS, self._looks) if at_once else self._looks
        ranks = list(ranks)
        for rank in ranks:
            if self._reaches(rank):
                self._found(rank)
            elif rank in self._missed:
                self._missed[rank] += 1
                if self._missed[rank] >= looks:
                    self._gone.setdefault(rank)
        return self.known_gone(ranks)

    def known_gone(self, ranks: Iterable[int]) -> list[int]:
        """The same, as of the last check."""
        wanted = set(ranks)
        return [rank for rank in self._gone if rank in wanted]

    def here(self, rank: int) -> bool:
        """Whether it was connected at one of the last checks."""
        return self._missed.get(rank, self._looks) < self._looks

    def _found(self, rank: int) -> None:
        self._missed[rank] = 0
        self._gone.pop(rank, None)

    def _reaches(self, rank: int) -> bool:
        try:
            identity = self._joined.get(rank) or presence_id(self._key, rank)
            self._socket.send_multipart([identity, b""], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True
