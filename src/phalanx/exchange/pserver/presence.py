"""Which workers are there, as the server's own socket knows it: each keeps a connection whose name says its rank.

zmq closes a connection that is silent; a look at it is an empty message, which cannot be sent to one that is closed.
"""

from collections.abc import Iterable

import zmq

from phalanx.exchange.liveness import grace_s, presence_id


class Presence:
    """Looked at every `look_s`; looks are counted, not seconds, since a server that was stopped has missed nothing."""

    def __init__(self, socket: "zmq.Socket[bytes]", key: str, silence_s: float, look_s: float) -> None:
        self._socket, self._key, self.silence_s = socket, key, silence_s
        self._looks = max(2, round(grace_s(silence_s) / look_s))
        self._missed: dict[int, int] = {}  # of those that have been here: looks in a row that did not find them
        self._gone: dict[int, None] = {}  # who is gone, the first one first

    def expect(self, rank: int) -> None:
        """It has joined: so it is here, whether or not it was looked for yet."""
        self._found(rank)

    def gone(self, ranks: Iterable[int]) -> list[int]:
        """Look. Those that were here, and have not been for a while; who went first may be why the others did."""
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
        """The same, as of the last look."""
        wanted = set(ranks)
        return [rank for rank in self._gone if rank in wanted]

    def here(self, rank: int) -> bool:
        """Whether it was, at one of the last looks."""
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
