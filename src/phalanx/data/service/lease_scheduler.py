"""One stream of batches from data servers: leases work, leases it again when a server is lost, keeps the order."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import zmq

from phalanx.data.order import Work
from phalanx.data.service.leases import Lease, Leases
from phalanx.data.service.link import Link, MadeBatch
from phalanx.errors import UserError

_LOOK_S = 0.25  # between looks at the clock while nothing arrives


@dataclass(frozen=True)
class Patience:
    """How long a trainer waits, in seconds."""

    silent_s: float = 5.0  # for a message from a server that owes a batch, before others get its work
    overdue_s: float = 60.0  # for a batch from a server that lives, before another one gets the same lease
    alone_s: float = 3.0  # for any server, before the user gets a message
    timeout_s: float = 300.0  # for any server, before the run ends


class LeaseScheduler:
    """Leases ahead of the trainer, which calls `next` for each step. All of it runs in that call."""

    def __init__(
        self,
        links: Sequence[Link],
        works: Iterator[Work],
        make: Callable[[Work], MadeBatch],
        patience: Patience,
        notify: Callable[[str], None],
        *,
        fallback: bool = False,
    ) -> None:
        """`make` makes a batch here: one without samples, and, with `fallback`, any while there is no server."""
        self._links, self._make, self._patience, self._notify = links, make, patience, notify
        self._leases: Leases[Link, MadeBatch] = Leases(works)
        self._fallback = fallback
        self._looked = time.monotonic()
        self._alone_s = 0.0
        self._notified = False
        self._overdue = -1  # the last lease that was reported as overdue
        self.leased_again = 0  # leases that went to another server
        self.stopped = False  # another thread sets this to end `next`
        self._poller = zmq.Poller()
        for link in links:
            link.channel.register(self._poller)
            self._poller.register(link.monitor, zmq.POLLIN)

    def next(self) -> tuple[Work, MadeBatch] | None:
        """The next step's work and its batch; None once `stopped`. Raises UserError where no server can make it."""
        while not self.stopped:
            self._receive()
            self._attend()
            self._lease_open()
            head = self._leases.head
            if head.made is None and self._fallback and self._alone_s > self._patience.alone_s:
                head.made = self._make(head.work)
            if head.made is not None:
                self._leases.pop()
                return head.work, head.made
            self._refuse_hopeless(head)
            self._poller.poll(int(1000 * _LOOK_S))
        return None

    def _receive(self) -> None:
        for link in self._links:
            for number, outcome in link.receive():
                if isinstance(outcome, UserError):
                    self._leases.fail(number, link, outcome)
                elif not self._leases.arrive(number, outcome):  # another server was faster
                    outcome.hand_out()
                    link.late += 1

    def _attend(self) -> None:
        now = time.monotonic()
        # Between two calls of `next` nothing is received; that time says nothing about the servers.
        elapsed_s, self._looked = min(now - self._looked, 2 * _LOOK_S), now
        for link in self._links:
            link.attend(elapsed_s, self._patience.silent_s)
            if link.lost:
                link.lost = False
                self.leased_again += self._leases.release(link)
        if any(link.joined for link in self._links):
            self._alone_s, self._notified = 0.0, False
            return
        self._alone_s += elapsed_s
        if self._alone_s > self._patience.alone_s and not self._notified:
            self._notified = True
            way_on = "batches are made here" if self._fallback else f"waiting for {self._patience.timeout_s:g} s"
            self._notify(f"no data server is there ({self._states()}): {way_on}")

    def _lease_open(self) -> None:
        """Lease what no server is making, the earliest first, each to the server that will finish it first."""
        ahead = sum(link.window for link in self._links if link.joined)
        for lease in self._leases.open(max(1, ahead)):
            if lease.work.samples == 0:
                lease.made = self._make(lease.work)
            elif (link := self._soonest(lease)) is not None and link.lease(lease.number, lease.work):
                lease.holders.add(link)
        self._hurry(self._leases.head)

    def _hurry(self, head: "Lease[Link, MadeBatch]") -> None:
        """Lease the batch that the trainer waits for to a second server where it is long overdue."""
        owed_s = [link.owes_for(head.number) for link in head.holders]
        if not owed_s or min(owed_s) < self._patience.overdue_s:
            return
        if self._overdue < head.number:
            self._overdue = head.number
            who = ", ".join(link.address for link in head.holders)
            self._notify(f"a batch has been owed for {min(owed_s):.0f} s by the data server at {who}")
        link = self._soonest(head)
        if link is not None and link.lease(head.number, head.work):
            head.holders.add(link)
            self.leased_again += 1

    def _soonest(self, lease: "Lease[Link, MadeBatch]") -> Link | None:
        """The server that will finish it first: of those with room, or of all if it is what the trainer waits for.

        Otherwise servers whose batches wait for this one would never get room to make it.
        """
        urgent = lease is self._leases.head
        able = [link for link in self._links if link.room or (urgent and link.joined and len(link.owed) < link.window)]
        able = [link for link in able if link not in lease.holders and link not in lease.failed]
        return min(able, key=lambda link: (link.pace_s * (len(link.owed) + 1), len(link.owed)), default=None)

    def _refuse_hopeless(self, head: "Lease[Link, MadeBatch]") -> None:
        """Raise where no server can make the next batch."""
        joined = [link for link in self._links if link.joined]
        if joined and all(link in head.failed for link in joined):
            link, error = next(iter(head.failed.items()))
            said = f"{error.what}, says the data server at {link.address}"
            raise UserError(said, why=error.why, remedy=error.remedy)
        unfit = [link for link in self._links if link.unfit is not None]
        if len(unfit) == len(self._links):
            raise UserError(
                f"the data server at {unfit[0].address} would make other batches",
                why=f"{unfit[0].unfit}",
                remedy="start it with the recipe and the settings of `phalanx train`, on the same data",
            )
        if self._alone_s > self._patience.timeout_s:
            raise UserError(
                f"no data server has been there for {self._patience.timeout_s:g} s",
                why=self._states(),
                remedy="start `phalanx serve-data` with the same recipe, or leave --data-service out; "
                "data.service_fallback=true makes batches here meanwhile",
            )

    def _states(self) -> str:
        return "; ".join(f"{link.address}: {link.state}" for link in self._links)
