"""All parameter servers of a job, as one worker sees them: the one that has a slice, and the first, which sums."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import zmq

from phalanx.config.role import Role
from phalanx.errors import UserError
from phalanx.exchange.liveness import LivenessWatch
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.link import Link
from phalanx.exchange.pserver.reduce import Numbers, Topic
from phalanx.exchange.pserver.slices import Slice
from phalanx.exchange.pserver.wire import MessageKind, ServerMessage
from phalanx.net.encryption import Encrypt
from phalanx.net.key import key_for

_LOOK_MS = 500  # between looks at whether the servers still live


class Servers:
    """One link for each server."""

    def __init__(
        self,
        role: Role,
        timeout_s: float,
        watch: LivenessWatch | None = None,
        encrypt: Encrypt = "auto",
        *,
        patient: bool = False,
    ) -> None:
        """`patient` waits for servers that cannot be reached for a while, once the job runs."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._next_look = 0.0
        self._unfinished = False
        self.links: list[Link] = []
        key = key_for(role.servers, role.key)
        for number, address in enumerate(role.servers):
            self.links.append(Link(self._context, number, address, key, role.rank, timeout_s, watch, encrypt))
            self.links[-1].patient = patient
            self.links[-1].channel.register(self._poller)

    def join(self, job: ServerJob) -> list[dict[str, Any]]:
        """Join at all servers at once: making its optimizer takes each of them seconds. Returns their welcomes."""
        with ThreadPoolExecutor(len(self.links)) as pool:
            return list(pool.map(lambda link: link.join(job), self.links))

    def rejoin(self, job: ServerJob) -> list[dict[str, Any]]:
        """Join again at all servers, also at those that have not taken this worker for lost yet."""
        with ThreadPoolExecutor(len(self.links)) as pool:
            return list(pool.map(lambda link: link.rejoin(job), self.links))

    def link(self, slice_: Slice) -> Link:
        return self.links[slice_.server]

    def request(self, kind: MessageKind, slice_: Slice, body: bytes | None = None) -> ServerMessage:
        """Send a request to the slice's server, and wait for its reply."""
        link = self.link(slice_)
        return link.request(link.header(kind, slice_.number), body=body)

    def reduce(self, topic: Topic, step: int, numbers: Numbers) -> tuple[Numbers, int]:
        """The sum over live workers and their number. A worker that dies meanwhile is left out.

        `step` is the step after which the workers sum, so that no one waits for a worker that joined later.
        """
        link = self.links[0]
        header = replace(link.header(MessageKind.REDUCE, topic), step=step)
        reply = link.request(header, body=numbers.astype("<f8").tobytes())
        total = np.frombuffer(bytes(reply.body), dtype="<f8")
        return total[:-1], int(total[-1])

    def wait(self) -> bool:
        """Sleep until something has arrived, or for a short while: False then. Raises if a server is lost.

        Servers send something all the time, to see whether this worker is connected: so the clock says when to look.
        """
        arrived = bool(self._poller.poll(_LOOK_MS))
        if not arrived or time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_MS / 1000
            for link in self.links:
                link.check_alive()
        return arrived

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, through shared memory or not."""
        return sum(link.bytes_sent for link in self.links), sum(link.bytes_received for link in self.links)

    def leave(self) -> None:
        """Tell all servers that this worker pushes no more."""
        for link in self.links:
            link.request(link.header(MessageKind.LEAVING))

    @property
    def stopping(self) -> bool:
        """Whether a server was told to end, and asks the workers to save and leave before it does."""
        return any(link.stopping for link in self.links)

    def leave_unfinished(self) -> None:
        """Have `close` tell the servers that training is to go on later, in another job."""
        self._unfinished = True

    def close(self) -> None:
        """Leave the job, and disconnect."""
        for link in self.links:
            with suppress(UserError):  # a server that has gone needs no goodbye
                link.request(link.header(MessageKind.GOODBYE, int(self._unfinished)))
            link.close()
        self.links = []
        self._context.term()


def declare_lost(role: Role, rank: int, timeout_s: float = 10.0) -> None:
    """For launchers that see a worker die: tell every server, so that none waits for it until the time-out."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for number, address in enumerate(role.servers):
        link = Link(context, number, address, key_for(role.servers, role.key), rank, timeout_s)
        try:
            link.request(link.header(MessageKind.LOST))
        finally:
            link.close()
    context.term()
