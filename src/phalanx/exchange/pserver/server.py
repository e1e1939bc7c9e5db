"""A parameter server: workers join and leave it, and it notices which of them are lost."""

import time
import traceback
from collections.abc import Callable, Collection, Iterable
from functools import partial
from ipaddress import ip_address
from typing import Any

import torch

from phalanx.custom import blame, is_reference
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.pserver.gather import Gathered
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.members import Loss, Member, Members, cannot_join, place_taken
from phalanx.exchange.pserver.presence import Presence
from phalanx.exchange.pserver.slice_server import SliceServer
from phalanx.exchange.pserver.sums import Sums
from phalanx.exchange.pserver.wire import WIRE, Header, MessageKind, ServerMessage
from phalanx.net import shared_memory as memory
from phalanx.net.code import CodeReport, refuse_other_code
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.messages import pack_error
from phalanx.net.request_server import PeerRequest, RequestServer
from phalanx.net.server_channel import ServerChannel
from phalanx.net.waiting import Patience, say

# What a description of a job leads to whose numbers do not fit together, or that asks for absurd memory.
_UNUSABLE = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AttributeError, MemoryError, OSError)
_FIRST_RANKS = 64  # whose presence is noted before the number of workers is known


class Server:
    """One server and its workers. `handle` takes one message, and never raises because of it."""

    def __init__(
        self,
        channel: ServerChannel,
        number: int,
        journal: Journal,
        presence: Presence,
        patience_s: float | None = None,
        code: Collection[str] = (),
    ) -> None:
        """When all workers are lost, they may take `patience_s` to come back; by default as long as the job waits.

        `code` are the references to user code that this server was started with: workers may name no others.
        """
        self._number, self._journal, self._presence, self._patience_s = number, journal, presence, patience_s
        self._code = code
        self._runs = CodeReport.of(f"server-{number}")
        self.members = Members()
        self.finished = False
        self.trained = False  # once all workers have left: whether that was the end of training
        self._unfinished = False  # whether a worker left before that
        self._stopping = False
        self._requests = RequestServer(channel, WIRE, journal.refused, self._handlers())
        self._sums = Sums(self.members, self._requests)
        self._slices: SliceServer | None = None  # once the first worker has described the job
        self._gathered = Gathered()
        self._loss: LostWorker | None = None  # why no further step is made
        self._last_loss = 0.0
        self._coming = Patience(0.0)  # for workers that have not joined yet

    def handle(self, frames: list[Any]) -> None:
        """One message, as zmq frames."""
        self._requests.handle(frames)

    def _handlers(self) -> dict[MessageKind, Callable[[PeerRequest[Header]], None]]:
        of_members: dict[MessageKind, Callable[[Member, ServerMessage], None]] = {
            MessageKind.VALUES: lambda member, message: self.slices.values(member, message),
            MessageKind.LOAD: lambda member, message: self.slices.load(member, message),
            MessageKind.ASK: lambda member, message: self.slices.ask(member, message),
            MessageKind.PULL: lambda member, message: self.slices.pull(member, message),
            MessageKind.STATE: lambda member, message: self.slices.state(member, message),
            MessageKind.PUSH: self._push,
            MessageKind.VOID: self._push,
            MessageKind.REDUCE: self._reduce,
            MessageKind.LEAVING: self._leaving,
            MessageKind.GOODBYE: self._goodbye,
        }

        def from_member(handler: Callable[[Member, ServerMessage], None]) -> Callable[[PeerRequest[Header]], None]:
            return lambda request: self._from_member(handler, request)

        handlers = {
            MessageKind.HELLO: self._hello,
            MessageKind.JOIN: self._join,
            MessageKind.GATHER: self._gather,
            MessageKind.LOST: self._declared_lost,
            **{kind: from_member(handler) for kind, handler in of_members.items()},
        }
        return {kind: partial(self._run, handler) for kind, handler in handlers.items()}

    def _from_member(self, handler: Callable[[Member, ServerMessage], None], request: PeerRequest[Header]) -> None:
        """Run a handler for a member. One that was taken for lost is told so: it may join again."""
        loss = self.members.loss_of(request.header)
        if loss is None:
            handler(self.members.of(request.identity, request.header), request.message)
            return
        self._journal.refused["given up"] += 1
        rank = request.header.worker
        if self.slices.policy.still:
            raise LostWorker(
                f"trainer-{rank} was taken for lost {loss.after}",
                why="it was stopped, or cut off from the others; in sync mode they cannot go on without it",
                remedy="phalanx train --resume goes on from the last checkpoint",
                lost=f"trainer-{rank}",
            )
        if self.members.is_taken(rank, own=()):
            raise place_taken(rank, loss)
        given_up = as_json({"after": loss.after})
        self._requests.send(request.identity, request.header.reply(MessageKind.GIVEN_UP), given_up)

    def _run(self, handler: Callable[[PeerRequest[Header]], None], request: PeerRequest[Header]) -> None:
        """Run a handler. An error of the user's own optimizer or schedule ends the job, and all workers get it."""
        try:
            handler(request)
        except (Refused, UserError):
            raise
        except Exception as error:
            blamed = blame(error, "correct it, and go on with: phalanx train --resume RUN --accept-code new")
            if blamed is None:  # all workers get to know it, instead of waiting for a server that is gone
                say(traceback.format_exc())
                blamed = UserError(
                    f"server-{self._number} cannot go on: {type(error).__name__}: {str(error)[:200]}",
                    why=f"a message of worker {request.header.worker} made it fail",
                    remedy="see the log of the server; if the optimizer's state was loaded, use an earlier checkpoint",
                )
            self._fail(blamed)
            raise blamed from error

    @property
    def slices(self) -> SliceServer:
        if self._slices is None:
            raise Refused("stranger")
        return self._slices

    @property
    def begun(self) -> bool:
        """Whether any worker has joined, or none can any more."""
        return self._slices is not None or self._loss is not None

    # Joining

    def _hello(self, request: PeerRequest[Header]) -> None:
        self._requests.send(request.identity, request.header.reply(MessageKind.DONE))

    def _gather(self, request: PeerRequest[Header]) -> None:
        sent = self._sent(request)
        rank = request.header.worker
        missing, texts = self._gathered.take(rank, sent, self._slices.job.world if self._slices is not None else None)
        self._presence.expect(rank)
        if missing and (gone := self._presence.known_gone(range(self._gathered.world))):
            raise self._lost_early(gone[0])  # whether or not it sent its text: all workers are needed for what follows
        if lost := self.members.lost.intersection(missing):
            raise self._lost_early(min(lost), "the others go on without it")
        gathered = as_json({"missing": missing, "texts": texts, "code": self._runs.to_data()})
        self._requests.send(request.identity, request.header.reply(MessageKind.GATHERED), gathered)

    def _join(self, request: PeerRequest[Header]) -> None:
        sent = self._sent(request)
        rank = request.header.worker
        if (joined := self.members.joined_by(request.identity, request.header)) is not None:
            # It asks again: making the optimizer took long, or the reply was lost with the connection.
            self._requests.send(request.identity, request.header.reply(MessageKind.WELCOME), joined.welcome)
            return
        refuse_other_code(self._runs, [CodeReport.from_data(sent.get("code"), f"trainer-{rank}")])
        job = ServerJob.from_description(sent.get("job", {}))
        for named in (job.optim.name, job.schedule.kind):
            if is_reference(named) and named not in self._code:
                raise cannot_join(rank, f"it names the code {named}, which this server was not started with")
        slices = self._slices or self._configure(job)
        if difference := slices.job.difference(job):
            raise cannot_join(rank, f"its settings differ from the others': {difference}")
        if rank >= job.world:
            raise Refused("rank")
        rejoined = rank in self.members.by_rank or rank in self.members.lost
        if rejoined and slices.policy.still:
            raise cannot_join(rank, "in sync mode a lost worker ends the job; resume it instead")
        self._free_place(rank, sent.get("own"))
        step = slices.step_to_join() if rejoined else None
        member = self._member(request, sent.get("area"), slices, -1 if step is None else step)
        slices.prepare(member, step)
        welcome: dict[str, Any] = {"shared": member.shared, "area": slices.area.address, "filled": slices.filled}
        member.welcome = as_json(welcome | {"rejoined": rejoined, "step": step or 0})
        self.members.add(member)
        self._presence.expect(rank, joined_by=member.identity)
        self._journal.write("join", {"worker": rank, "rejoined": rejoined, "shared_memory": member.shared})
        self._requests.send(request.identity, request.header.reply(MessageKind.WELCOME), member.welcome)
        if "own" in sent and self._number == 0:
            say(f"server-0: {self.members.named(rank)} is back, and goes on with step {step or 0}")

    def _free_place(self, rank: int, own: Any) -> None:
        """Free the place of a worker that joins: for a new process, or for one that was taken for lost and is back.

        The latter sends its `own` incarnations, and never replaces another process.
        """
        if own is None and rank in self.members.by_rank:
            self.lose(rank, "a new process took its place")
        elif own is not None:
            if not isinstance(own, list):
                raise Refused("garbage")
            if self.members.is_taken(rank, own):
                raise place_taken(rank)
            if rank in self.members.by_rank:  # another server took it for lost, and this one did not yet
                self._remove(rank, Loss("it joined again"))

    def _sent(self, request: PeerRequest[Header]) -> dict[str, Any]:
        """What a worker sends to gather or join. After a loss it gets that error instead."""
        sent = from_json(request.message.control)
        self._refuse_after_loss()
        return sent

    def _configure(self, job: ServerJob) -> SliceServer:
        try:
            slices = SliceServer(job, self._number, self.members, self._requests, self._journal, self._fail)
        except _UNUSABLE as error:
            if blame(error) is not None:
                raise
            raise Refused("job") from error
        self._slices, self._coming = slices, Patience(job.timeout_s)
        self.members.live = set(range(job.world))
        start = {"mode": job.mode, "workers": job.world, "slices": len(slices), "bytes": slices.num_bytes}
        self._journal.write("start", start)
        return slices

    def _member(self, request: PeerRequest[Header], area: Any, slices: SliceServer, since: int) -> Member:
        shared = memory.attach(area, slices.num_bytes)
        watch = memory.ProcessWatch(int(area["pid"])) if shared is not None else None
        own = shared if shared is not None else torch.zeros(slices.num_bytes, dtype=torch.uint8)
        header, address = request.header, _address(request.frame)
        return Member(
            *(header.worker, header.incarnation, request.identity, own, shared is not None, watch),
            *(slices.places, since, address),
        )

    # Steps

    def _push(self, member: Member, message: ServerMessage) -> None:
        self._refuse_after_loss()
        if self.slices.policy.still and self.members.left:
            rank = self.members.left[0]
            self._fail_without(rank, f"worker {rank}", f"it left before step {message.header.step}")
        else:
            self.slices.push(member, message)

    def _reduce(self, member: Member, message: ServerMessage) -> None:
        self._refuse_after_loss()
        self._sums.add(member, message)

    def _refuse_after_loss(self) -> None:
        """After a loss only those requests get a reply that a survivor of an elastic job needs to save."""
        if self._loss is not None:
            raise self._loss

    # Leaving

    def _leaving(self, member: Member, message: ServerMessage) -> None:
        self.members.leaving.add(member.rank)
        self._requests.send(member.identity, message.header.reply(MessageKind.DONE))
        self._wait_no_longer()

    def _goodbye(self, member: Member, message: ServerMessage) -> None:
        self._requests.send(member.identity, message.header.reply(MessageKind.DONE))
        self._journal.write("goodbye", {"worker": member.rank})
        self.members.left.append(member.rank)
        self._unfinished |= message.header.slice > 0
        self._remove(member.rank)
        self.finished = not self.members.live  # a worker that was lost has nothing to come back to
        self.trained = self.finished and not self._unfinished

    def _declared_lost(self, request: PeerRequest[Header]) -> None:
        self.lose(request.header.worker, "the launcher says so")
        self._requests.send(request.identity, request.header.reply(MessageKind.DONE))

    def _remove(self, rank: int, loss: Loss | None = None) -> None:
        self.members.remove(rank, loss)
        self._presence.left(rank)
        self._sums.forget(rank)
        self.slices.forget(rank)
        if loss is None or not self.slices.policy.still:
            self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        """A worker makes no further step: let the others go on that waited only for it."""
        self.slices.advance_all()
        self._sums.send_complete()

    def stop(self) -> None:
        """Asked to end: ask the workers to save and leave, and wait for those that are connected."""
        if not self._stopping and self._number == 0:
            say("server-0: told to end; the workers save and leave first")
        self._stopping = True
        self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        """Again at each tick: a worker may join only now, or lose its connection."""
        for member in self.members.by_rank.values():
            self._requests.send(member.identity, Header(MessageKind.STOPPING, member.rank, member.incarnation))
        self.finished |= not self._any_here(self.members.live)

    # Losses

    def tick(self) -> None:
        """Once a second or so: which workers are gone, and which have been silent too long while others wait?"""
        if self._stopping:
            self._ask_to_leave()
        if self._slices is None:
            return self._tick_early()
        job = self._slices.job
        for rank in self._presence.gone(sorted(self.members.live), at_once=self._stopping):
            self.lose(rank, self.members.hindrance(rank) or self._silence, self._presence.silence_s)
        if self._loss is not None and not job.elastic and not self._any_here(self.members.live):
            self.finished = True  # all connected workers got the error
        if self._slices.busy or self._sums:
            for rank in self.members.silent(list(self.members.live), job.timeout_s):
                self.lose(rank, f"it was silent for {job.timeout_s:g} s", job.timeout_s)
        patience_s = job.timeout_s if self._patience_s is None else min(job.timeout_s, self._patience_s)
        if not self.finished and not self.members.live and time.monotonic() - self._last_loss > patience_s:
            say(f"server-{self._number}: all workers are gone; ending")
            self.finished = True  # all were lost, and none came back
        return self._look_for_missing(job)

    def _look_for_missing(self, job: ServerJob) -> None:
        missing = [rank for rank in self.members.not_joined if not self._presence.here(rank)]
        if missing and self._coming.over:
            for rank in missing:
                self.lose(rank, f"it did not join within {job.timeout_s:g} s")
        elif missing and self._coming.due and self._number == 0:
            workers = ", ".join(map(str, sorted(missing)[:8]))
            self._coming.report(f"server-0 waits for {len(missing)} of {job.world} workers: {workers}")

    def _tick_early(self) -> None:
        """Before any worker has joined: without the first one nothing begins."""
        ranks = range(self._gathered.world or _FIRST_RANKS)
        gone = self._presence.gone(ranks)
        if 0 not in gone:
            return
        if self._loss is None:
            say(f"server-{self._number}: worker 0 is gone before it began; ending")
            self._loss = self._lost_early(gone[0])
        self.finished = not self._any_here(ranks)  # connected workers get the error when they gather or join

    def _any_here(self, ranks: Iterable[int]) -> bool:
        return any(map(self._presence.here, ranks))

    @property
    def _silence(self) -> str:
        return f"its connection broke, or was silent for {self._presence.silence_s:g} s"

    def _lost_early(self, rank: int, how: str = "") -> LostWorker:
        return LostWorker(
            f"worker {rank} is gone: {how or self._silence}",
            why="before the first step all workers agree on what they do, and it ended before that",
            remedy=f"see the log of trainer-{rank}, or the last lines that it printed; then start the job again",
            lost=f"trainer-{rank}",
        )

    def lose(self, rank: int, why: str, silence_s: float | None = None) -> None:
        """A worker is dead, or was silent for `silence_s`. async and ssp go on without it; sync cannot."""
        if rank not in self.members.live:
            return
        self._journal.write("lost", {"worker": rank, "why": why})
        self._last_loss = time.monotonic()
        name = self.members.named(rank)
        self._remove(rank, Loss(why, silence_s))
        if self.slices.policy.still:
            self._fail_without(rank, name, why)
        elif self._number == 0:
            say(f"server-0: {name} is gone: {why}; the others go on without it")
        if self._loss is not None and not self.members.live:
            self.finished = True

    def _fail_without(self, rank: int, name: str, why: str) -> None:
        if self._loss is not None:
            return
        error = LostWorker(
            f"{name} is gone: {why}",
            why="in sync mode every step needs every worker's gradients",
            remedy=f"see the log of trainer-{rank}; phalanx train --resume goes on from the last checkpoint",
            lost=f"trainer-{rank}",
        )
        self._fail(error)
        if self._any_here(self.members.not_joined) or self.slices.job.elastic:
            # No update is made from now on: the survivors of an elastic job save the last step that all slices have
            # reached, and a worker that has not joined yet gets the error when it does.
            self._loss, self.finished = error, False
            self.slices.drop_pushes()

    def _fail(self, error: UserError) -> None:
        """Send an error to all workers, and end."""
        self._journal.write("failed", {"what": error.what})
        for member in self.members.by_rank.values():
            header = Header(MessageKind.FAILED, member.rank, member.incarnation)
            self._requests.send(member.identity, header, pack_error(error))
        self.finished = True


def _address(frame: Any) -> str:
    """Where a message comes from; empty where that is this machine, by a socket in a folder."""
    try:
        return str(ip_address(frame.get("Peer-Address")))
    except ValueError:
        return ""
