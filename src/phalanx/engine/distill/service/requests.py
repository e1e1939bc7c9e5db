"""The requests of one trainer to its teacher processes: a thread sends, sends again when one is lost, and collects."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import zmq
from torch import Tensor

from phalanx.engine.distill.service.link import Link
from phalanx.errors import UserError
from phalanx.net.encryption import Encrypt
from phalanx.net.lane_loop import Wakeup
from phalanx.net.messages import Buffer

_LOOK_S = 0.25  # between looks at the clock while nothing arrives
_WINDOW = 2  # requests that a process has at a time: one that it computes, one that waits for it
_SILENT_S = 5.0  # for a message from a process that owes logits, before others get its work
_ALONE_S = 10.0  # without any process, before the user gets a message; starting one takes seconds


@dataclass(eq=False)
class Asked:
    """A view whose logits are asked for. `outcome` is there when `done` is set."""

    number: int
    control: bytes
    body: Buffer
    by: Link | None = None  # the process that owes them
    failed: dict[Link, UserError] = field(default_factory=dict)  # processes that cannot compute them
    done: threading.Event = field(default_factory=threading.Event)
    outcome: Tensor | UserError | None = None


class TeacherRequests:
    """Spreads requests over processes, in a thread of its own: the trainer computes meanwhile."""

    def __init__(
        self,
        servers: Mapping[str, str],
        terms: Mapping[str, Any],
        notify: Callable[[str], None],
        *,
        timeout_s: float,
        encrypt: Encrypt = "auto",
    ) -> None:
        """`servers` has a key for each address. `notify` gets news for the user, in that thread."""
        self._servers, self._terms, self._notify = servers, terms, notify
        self._timeout_s, self._encrypt = timeout_s, encrypt
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._open: dict[int, Asked] = {}  # in the order in which they were asked
        self._wakeup = Wakeup()
        self._stopped = False
        self._failed: UserError | None = None
        self._looked, self._alone_s, self._told = time.monotonic(), 0.0, False
        self.links: list[Link] = []
        self._thread: threading.Thread | None = None

    def ask(self, control: bytes, body: Buffer) -> Asked:
        """Ask for the logits of a view; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="phalanx-teachers", daemon=True)
            self._thread.start()
        asked = Asked(next(self._numbers), control, body)
        with self._lock:
            self._open[asked.number] = asked
            if self._failed is not None:
                self._finish(asked, self._failed)
        self._wakeup.set()
        return asked

    def forget(self, asked: Asked) -> None:
        """Nobody waits for these logits any more."""
        with self._lock:
            self._open.pop(asked.number, None)

    def close(self) -> None:
        self._stopped = True
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._wakeup.close()

    def _run(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            for address, key in self._servers.items():
                self.links.append(Link(context, address, key, self._terms, self._notify, self._encrypt))
            poller = zmq.Poller()
            poller.register(self._wakeup.fileno(), zmq.POLLIN)
            for link in self.links:
                link.channel.register(poller)
                poller.register(link.monitor, zmq.POLLIN)
            self._looked = time.monotonic()
            while not self._stopped:
                poller.poll(int(1000 * _LOOK_S))
                self._turn()
        except UserError as error:
            self._fail(error)
        except Exception as error:  # the trainer waits for this thread: it has to learn what happened
            self._fail(UserError("the teachers cannot be asked", why=f"{type(error).__name__}: {error}", remedy=""))
        finally:
            for link in self.links:
                link.close()
            context.term()

    def _turn(self) -> None:
        self._wakeup.clear()
        for link in self.links:
            for number, outcome in link.receive():
                self._take(link, number, outcome)
        now = time.monotonic()
        elapsed, self._looked = min(now - self._looked, 2 * _LOOK_S), now  # this process may have been stopped itself
        for link in self.links:
            link.attend(elapsed, _SILENT_S)
        with self._lock:
            open_now = list(self._open.values())
        for asked in open_now:
            if asked.by is not None and asked.number not in asked.by.owed:
                asked.by = None  # that process was lost
            if asked.by is None:
                self._give(asked)
        if open_now:
            self._refuse_hopeless(open_now, elapsed)

    def _give(self, asked: Asked) -> None:
        """To the process with the least to do."""
        able = [link for link in self.links if link.joined and link not in asked.failed and len(link.owed) < _WINDOW]
        for link in sorted(able, key=lambda link: len(link.owed)):
            if link.ask(asked.number, asked.control, asked.body):
                asked.by = link
                return

    def _take(self, link: Link, number: int, outcome: Tensor | UserError) -> None:
        with self._lock:
            asked = self._open.get(number)
            if asked is None or asked.by is not link:
                return  # nobody waits for it, or another process has been asked meanwhile
            asked.by = None
            if isinstance(outcome, Tensor):
                self._finish(asked, outcome)
            else:
                asked.failed[link] = outcome

    def _finish(self, asked: Asked, outcome: Tensor | UserError) -> None:
        asked.outcome = outcome
        self._open.pop(asked.number, None)
        asked.done.set()

    def _fail(self, error: UserError) -> None:
        with self._lock:
            self._failed = error
            for asked in list(self._open.values()):
                self._finish(asked, error)

    def _refuse_hopeless(self, waiting: list[Asked], elapsed_s: float) -> None:
        """Raise where nobody can compute the logits."""
        joined = [link for link in self.links if link.joined]
        for asked in waiting:
            if joined and all(link in asked.failed for link in joined):
                link, error = next(iter(asked.failed.items()))
                raise UserError(f"{error.what}, says the teacher at {link.address}", why=error.why, remedy=error.remedy)
        unfit = [link for link in self.links if link.unfit is not None]
        if len(unfit) == len(self.links):
            raise UserError(
                f"the teacher at {unfit[0].address} would compute other logits",
                why=f"{unfit[0].unfit}",
                remedy="start `phalanx serve-teacher` with the run that --teacher names, and with this version",
            )
        present = joined or any(link.loading for link in self.links)
        self._alone_s = 0.0 if present else self._alone_s + elapsed_s
        if joined:
            self._told = False
        elif self._alone_s > _ALONE_S and not self._told:
            self._told = True
            self._notify(f"training waits for a teacher: {self._states()}")
        if self._alone_s > self._timeout_s:
            raise UserError(
                f"no teacher has been there for {self._timeout_s:g} s",
                why=self._states(),
                remedy="look at the teachers' logs, start `phalanx serve-teacher` there, or leave the service out: "
                "the trainers then compute the teachers' logits themselves",
            )

    def _states(self) -> str:
        return "; ".join(f"{link.address}: {link.state}" for link in self.links)
