"""Which workers are connected: each has a connection to the server whose identity says its rank.

zmq closes a connection that is silent. The server checks one by sending an empty message, which fails if it is closed.
"""

from collections.abc import Iterable

import zmq

from phalanx.exchange.liveness import grace_s, presence_id


class Presence:
    """Checked every `look_s`. Checks are counted, not seconds: while the server was stopped, workers did not fail."""

    def __init__(self, socket: "zmq.Socket[bytes]", key: str, silence_s: float, look_s: float) -> None:
        self._socket, self._key, self.silence_s = socket, key, silence_s
        self._looks = max(2, round(grace_s(silence_s) / look_s))
        self._missed: dict[int, int] = {}  # of workers that have been connected: failed checks in a row
        self._gone: dict[int, None] = {}  # ranks that are gone, in that order

    def expect(self, rank: int) -> None:
        """It has joined: so it is alive, whether or not it was checked yet."""
        self._found(rank)

    def gone(self, ranks: Iterable[int]) -> list[int]:
        """Check. The ranks that were connected, and have not been for a while, in the order in which they were lost."""
        ranks = list(ranks)
        for rank in ranks:
            if self._reaches(rank):
                self._found(rank)
            elif rank in self._missed:
                self._missed[rank] += 1
                if self._missed[rank] >= self._looks:
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
            self._socket.send_multipart([presence_id(self._key, rank), b""], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True
