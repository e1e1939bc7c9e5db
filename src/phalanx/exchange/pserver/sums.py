"""The server's side of sums over workers: collects the numbers, and sends each worker the total."""

import numpy as np

from phalanx.exchange.pserver.members import Member, Members
from phalanx.exchange.pserver.reduce import Reduces
from phalanx.exchange.pserver.wire import Header, MessageKind, ServerMessage
from phalanx.net.control import Refused
from phalanx.net.request_server import RequestServer


class Sums:
    """Sums that workers have asked for and that are not complete yet."""

    def __init__(self, members: Members, requests: RequestServer[Header]) -> None:
        self._members, self._requests = members, requests
        self._reduces = Reduces()

    def __bool__(self) -> bool:
        return bool(self._reduces)

    def add(self, member: Member, message: ServerMessage) -> None:
        """A worker's numbers. It may send them again, if the total got lost or takes long."""
        header, numbers = message.header, message.body
        if member.reduced is not None and member.reduced[0].sequence == header.sequence:
            return self._send(member)
        if numbers is None or len(numbers) % 8:
            raise Refused("length")
        if member.reducing == header:
            return self._requests.send(member.identity, header.reply(MessageKind.SUMMING))
        member.reducing = header
        self._reduces.add(header.slice, header.step, member.rank, np.frombuffer(bytes(numbers), dtype="<f8"))
        return self.send_complete()

    def forget(self, rank: int) -> None:
        """A worker has left the job."""
        self._reduces.forget(rank)

    def send_complete(self) -> None:
        """Send the totals that wait for no other worker."""
        for ranks, total in self._reduces.complete(self._members.joined(), self._members.leaving):
            for rank in ranks:
                member = self._members.by_rank[rank]
                member.reduced = (member.reducing.reply(MessageKind.REDUCED), total.tobytes())
                self._send(member)

    def _send(self, member: Member) -> None:
        assert member.reduced is not None
        header, total = member.reduced
        self._requests.send(member.identity, header, body=total)
