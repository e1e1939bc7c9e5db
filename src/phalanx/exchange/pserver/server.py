"""A parameter server: receives pushes, updates its slices when the policy says so, answers with parameters."""

import time
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Any

import numpy as np
import torch
import zmq
from torch import Tensor

from phalanx.custom import blame, is_reference
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.compress.codec import BadPayload, Codec
from phalanx.exchange.pserver.compressor import decode, wire_bytes
from phalanx.exchange.pserver.gather import Gathered
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.members import Member, Members, not_welcome, places_of
from phalanx.exchange.pserver.policy import Policy, Push, make_policy
from phalanx.exchange.pserver.presence import Presence
from phalanx.exchange.pserver.reduce import Reduces
from phalanx.exchange.pserver.slice_state import SliceState
from phalanx.exchange.pserver.slices import views
from phalanx.exchange.pserver.wire import Header, MessageKind, Seal
from phalanx.net import shared_memory as memory
from phalanx.net.seal import Refused, as_json, from_json
from phalanx.net.waiting import Patience, say

Payload = memoryview | None
_FIRST_RANKS = 64  # of whom it is noted whether they are there before it is known how many there are


class Server:
    """The slices of one server and the workers that use them. `handle` takes one message and never raises for one."""

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        number: int,
        seal: Seal,
        journal: Journal,
        presence: Presence,
        patience_s: float | None = None,
        code: Collection[str] = (),
    ) -> None:
        """When all workers are lost, they may take `patience_s` to come back; by default as long as the job waits.

        `code` are the references to user code that this server was started with: trainers may name no others.
        """
        self._code = code
        self._presence, self._patience_s = presence, patience_s
        self.members = Members()
        self.finished = False
        self._socket, self._number, self._seal, self._journal = socket, number, seal, journal
        self._job: ServerJob | None = None
        self._policy: Policy = make_policy("sync", 1, damping=False)
        self._codec: Codec | None = None
        self._held: dict[int, SliceState] = {}
        self._area = memory.create(memory.TOKEN_BYTES)
        self._reduces = Reduces()
        self._gathered = Gathered()
        self._pulls: list[tuple[Member, Header]] = []  # wait for the first parameters
        self._left: list[int] = []
        self._parted: LostWorker | None = None  # why no further step is made: a worker was lost
        self._last_loss = 0.0
        self._coming = Patience(0.0)  # for those who have not come yet
        self._reached = 0  # the furthest step that any worker pushed, plus 1
        self._answers: dict[MessageKind, Callable[[Member, Header, Payload], None]] = {
            MessageKind.VALUES: self._values,
            MessageKind.LOAD: self._load,
            MessageKind.PUSH: self._push,
            MessageKind.VOID: self._push,
            MessageKind.ASK: self._ask,
            MessageKind.PULL: self._pull,
            MessageKind.STATE: self._state,
            MessageKind.REDUCE: self._reduce,
            MessageKind.LEAVING: self._leaving,
            MessageKind.GOODBYE: self._goodbye,
        }

    def handle(self, frames: list[Any]) -> None:
        """One message, as zmq frames: who sent it, the header, and perhaps a payload."""
        try:
            if len(frames) not in (2, 3):
                raise Refused("garbage")
            identity = bytes(frames[0].buffer)
            payload = frames[2].buffer if len(frames) == 3 else None
            header = self._seal.unpack(frames[1].buffer, payload)
            if header.kind is MessageKind.HELLO:
                self._send(
                    identity, header.reply(MessageKind.CHALLENGE), as_json({"nonce": self.members.challenge(identity)})
                )
            elif header.kind is MessageKind.JOIN:
                self._join(identity, header, payload, _address(frames[1]))
            elif header.kind is MessageKind.GATHER:
                self._gather(identity, header, payload)
            elif header.kind is MessageKind.LOST:
                self._told_lost(identity, header, payload)
            elif header.kind in self._answers:
                self._answers[header.kind](self.members.of(identity, header), header, payload)
            else:
                raise Refused("kind")
        except Refused as refused:
            self._journal.refused[refused.reason] += 1
        except UserError as error:  # such as an optimizer that does not exist: the trainer tells its user
            self._send(identity, header.reply(MessageKind.FAILED), _told(error))
        except Exception as error:
            blamed = blame(error)
            if blamed is None:
                raise
            self._send(identity, header.reply(MessageKind.FAILED), _told(blamed))
            self._fail(blamed)

    @property
    def begun(self) -> bool:
        """Whether any worker has joined, or none can any more."""
        return self._job is not None or self._parted is not None

    def tick(self) -> None:
        """Once a second or so: who is gone, and who has been silent for too long while others wait?"""
        if self._job is None:
            return self._tick_early()
        for rank in self._presence.gone(sorted(self.members.live)):
            self.lose(rank, self._silence)
        if self._parted is not None and not self._job.elastic and not self._any_here(self.members.live):
            self.finished = True  # all that could be told of the loss were
        timeout_s = self._job.timeout_s
        waiting = any(held.arrived or held.applied for held in self._held.values()) or self._reduces or self._pulls
        if waiting:
            for rank in self.members.silent(list(self.members.live), timeout_s):
                self.lose(rank, f"it was silent for {timeout_s:g} s")
        patience_s = timeout_s if self._patience_s is None else min(timeout_s, self._patience_s)
        if not self.members.live and time.monotonic() - self._last_loss > patience_s:
            say(f"server-{self._number}: all workers are gone; ending")
            self.finished = True  # all were lost, and none came back
        missing = [rank for rank in self.members.live - self.members.by_rank.keys() if not self._presence.here(rank)]
        if missing and self._coming.over:
            for rank in missing:
                self.lose(rank, f"it did not come within {timeout_s:g} s")
        elif missing and self._coming.due and self._number == 0:
            workers = ", ".join(map(str, sorted(missing)[:8]))
            self._coming.word(f"server-0 waits for {len(missing)} of {self._job.world} workers: {workers}")
        return None

    def _tick_early(self) -> None:
        """Before anybody has joined: without the first worker nothing begins."""
        ranks = range(self._gathered.world or _FIRST_RANKS)
        gone = self._presence.gone(ranks)
        if 0 not in gone:
            return
        if self._parted is None:
            say(f"server-{self._number}: worker 0 is gone before it began; ending")
            self._parted = self._lost_early(gone[0])
        self.finished = not self._any_here(ranks)  # who is here hears of it when it gathers or joins

    def _any_here(self, ranks: Iterable[int]) -> bool:
        return any(map(self._presence.here, ranks))

    @property
    def _silence(self) -> str:
        return f"its connection broke, or was silent for {self._presence.silence_s:g} s"

    def _lost_early(self, rank: int, how: str = "") -> LostWorker:
        return LostWorker(
            f"worker {rank} is gone: {how or self._silence}",
            why="before the first step all workers agree on what they do, and it ended before that",
            remedy=f"see the log of trainer-{rank}, or what it said last; then start the job again",
        )

    def lose(self, rank: int, why: str) -> None:
        """A worker is dead. async and ssp go on without it; sync cannot."""
        if rank not in self.members.live:
            return
        self._journal.write("lost", {"worker": rank, "why": why})
        self._last_loss = time.monotonic()
        who = self.members.named(rank)
        self._remove(rank, lost=True)
        if self._policy.still:
            self._fail_without(rank, who, why)
        elif self._number == 0:
            say(f"server-0: {who} is gone: {why}; the others go on without it")
        if self._parted is not None and not self.members.live:
            self.finished = True

    # Coming and going

    def _gather(self, identity: bytes, header: Header, payload: Payload) -> None:
        told = from_json(payload)
        self.members.answered(identity, told.get("nonce"))
        self._refuse_parted()
        missing, texts = self._gathered.take(header.worker, told, self._job.world if self._job is not None else None)
        self._presence.expect(header.worker)
        if missing and (gone := self._presence.known_gone(range(self._gathered.world))):
            raise self._lost_early(gone[0])  # whether or not it has spoken: all are needed for what comes next
        if lost := self.members.lost.intersection(missing):
            raise self._lost_early(min(lost), "the others go on without it")
        self._send(identity, header.reply(MessageKind.GATHERED), as_json({"missing": missing, "texts": texts}))

    def _join(self, identity: bytes, header: Header, payload: Payload, address: str) -> None:
        told = from_json(payload)
        self.members.answered(identity, told.get("nonce"))
        self._refuse_parted()
        job = ServerJob.from_description(told.get("job", {}))
        rank = header.worker
        for named in (job.optim.name, job.schedule.kind):
            if is_reference(named) and named not in self._code:
                raise not_welcome(rank, f"it names the code {named}, which this server was not started with")
        if self._job is None:
            self._configure(job)
        elif difference := self._job.difference(job):
            raise not_welcome(rank, f"its settings differ from the others': {difference}")
        if rank >= job.world:
            raise Refused("rank")
        rejoined = rank in self.members.by_rank or rank in self.members.lost
        if rejoined and self._policy.still:
            raise not_welcome(rank, "in sync mode a lost worker ends the job; resume it instead")
        if rank in self.members.by_rank:
            self.lose(rank, "a new process took its place")
        step = self._step_to_join()
        places, size = places_of([held.slice for held in self._held.values()])
        shared = memory.attach(told.get("area"), size)
        watch = memory.ProcessWatch(int(told["area"]["pid"])) if shared is not None else None
        area = shared if shared is not None else torch.zeros(size, dtype=torch.uint8)
        since = step if rejoined else -1
        member = Member(rank, header.incarnation, identity, area, shared is not None, watch, places, since, address)
        for held in self._held.values():
            # Plain gradients are used where they arrive; compressed ones are decoded to a place of their own.
            flat = member.slot(held.slice).view(torch.float32) if self._codec is None else torch.zeros(held.slice.span)
            member.decoded[held.slice.number] = flat
            member.gradients[held.slice.number] = views(flat, held.slice, job.layouts)
            if rejoined:
                held.clocks[rank] = step
        self.members.add(member)
        self._presence.expect(rank)
        self._journal.write("join", {"worker": rank, "rejoined": rejoined, "shared_memory": member.shared})
        filled = all(held.filled for held in self._held.values())
        welcome: dict[str, Any] = {"shared": member.shared, "area": self._area.address, "filled": filled}
        welcome |= {"rejoined": rejoined, "step": step if rejoined else 0}
        self._send(identity, header.reply(MessageKind.WELCOME), as_json(welcome))

    def _configure(self, job: ServerJob) -> None:
        mine = job.slices_of(self._number)
        places, size = places_of(mine)
        self._area = memory.create(size)
        for each in mine:
            params = self._area.bytes[places[each.number] : places[each.number] + each.bytes].view(torch.float32)
            self._held[each.number] = SliceState(
                *(each, params, job.layouts, set(job.exempt), job.optim, job.schedule),
                keep_before=job.elastic and make_policy(job.mode, job.world, job.damping).still,
            )
        self._codec = job.codec()
        self._policy = make_policy(job.mode, job.world, job.damping)
        self._job, self._coming = job, Patience(job.timeout_s)
        self.members.live = set(range(job.world))
        self._journal.write("start", {"mode": job.mode, "workers": job.world, "slices": len(mine), "bytes": size})

    def _step_to_join(self) -> int:
        """Where a worker that comes back goes on: with the slowest of the others, so that nobody waits for it."""
        clocks = [held.clocks.get(rank, 0) for held in self._held.values() for rank in self.members.live]
        return min(clocks, default=self._reached)

    def _leaving(self, member: Member, header: Header, payload: Payload) -> None:
        self.members.leaving.add(member.rank)
        self._send(member.identity, header.reply(MessageKind.DONE))
        self._nobody_waits()

    def _goodbye(self, member: Member, header: Header, payload: Payload) -> None:
        self._send(member.identity, header.reply(MessageKind.DONE))
        self._journal.write("goodbye", {"worker": member.rank})
        self._left.append(member.rank)
        self._remove(member.rank, lost=False)
        self.finished = not self.members.live  # who was lost and has not come back has nothing to come back to

    def _told_lost(self, identity: bytes, header: Header, payload: Payload) -> None:
        self.members.answered(identity, from_json(payload).get("nonce"))
        self.lose(header.worker, "the launcher says so")
        self._send(identity, header.reply(MessageKind.DONE))

    def _remove(self, rank: int, lost: bool) -> None:
        self.members.remove(rank, lost)
        self._reduces.forget(rank)
        self._pulls = [(member, header) for member, header in self._pulls if member.rank != rank]
        for held in self._held.values():
            held.forget(rank)
        if not (lost and self._policy.still):
            self._nobody_waits()

    def _nobody_waits(self) -> None:
        """For a worker whose steps will not come: let those go on who waited for nobody else."""
        for held in self._held.values():
            self._advance(held)
        self._tell_sums()

    def _fail_without(self, rank: int, who: str, why: str) -> None:
        if self._parted is not None:
            return
        error = LostWorker(
            f"{who} is gone: {why}",
            why="in sync mode every step needs every worker's gradients",
            remedy=f"see the log of trainer-{rank}; phalanx train --resume goes on from the last checkpoint",
        )
        self._fail(error)
        unaware = self._any_here(self.members.live - self.members.by_rank.keys())
        if unaware or (self._job is not None and self._job.elastic):
            # No update is made from now on: survivors save the last step that all slices have reached, where the job is
            # elastic; and who has not joined yet hears of the loss when it does.
            self._parted, self.finished = error, False
            for held in self._held.values():
                held.arrived.clear()

    def _refuse_parted(self) -> None:
        """After a loss only what a survivor of an elastic job needs to save is answered."""
        if self._parted is not None:
            raise self._parted

    def _fail(self, error: UserError) -> None:
        self._journal.write("failed", {"what": error.what})
        for member in self.members.by_rank.values():
            self._send(member.identity, Header(MessageKind.FAILED, member.rank, member.incarnation), _told(error))
        self.finished = True

    # Slices

    def _slice(self, header: Header) -> SliceState:
        if header.slice not in self._held:
            raise Refused("slice")
        return self._held[header.slice]

    def _push(self, member: Member, header: Header, payload: Payload) -> None:
        held = self._slice(header)
        self._refuse_parted()
        if self._policy.still and self._left:
            return self._fail_without(self._left[0], f"worker {self._left[0]}", f"it left before step {header.step}")
        known = held.known(member.rank)
        if known is not None and header.sequence <= known.sequence:
            self._journal.duplicates += 1
            return self._ask(member, header, payload)
        gradients: list[Any] = [None] * len(held.slice.pieces)
        if header.present and header.kind is MessageKind.PUSH:
            there = self._gradients(member, held, header, payload)
            gradients = [each if header.present >> bit & 1 else None for bit, each in enumerate(there)]
        void = header.kind is MessageKind.VOID
        held.arrive(Push(member.rank, header.sequence, header.step, header.version, gradients, void))
        self._reached = max(self._reached, header.step + 1)
        return self._advance(held)

    def _gradients(self, member: Member, held: SliceState, header: Header, payload: Payload) -> list[Tensor]:
        """A push's gradient by piece, decoded; without a copy where it is plain."""
        sent = self._received(member, held, header, payload)
        flat = member.decoded[header.slice]
        if self._codec is not None:
            try:
                decode(self._codec, held.slice, sent, flat)
            except BadPayload as error:
                raise Refused("payload") from error
        elif payload is not None:
            if sent.data_ptr() % 4 == 0 and self._job is not None:
                return views(sent.view(torch.float32), held.slice, self._job.layouts)
            flat.view(torch.uint8).copy_(sent)  # zmq puts small messages anywhere
        return member.gradients[header.slice]

    def _received(self, member: Member, held: SliceState, header: Header, payload: Payload) -> Tensor:
        """The bytes of a message: those that came with it, or those in the worker's slot."""
        expected = held.slice.bytes
        if self._codec is not None and header.kind is MessageKind.PUSH:
            expected = wire_bytes(self._codec, held.slice)
        if header.length != expected or (payload is None and not member.shared):
            raise Refused("length")
        if payload is not None:
            return torch.frombuffer(payload, dtype=torch.uint8)
        return member.slot(held.slice)[:expected]

    def _advance(self, held: SliceState) -> None:
        """Apply what is due, then answer whoever may go on."""
        while pushes := self._policy.due(held.arrived, self.members.pushing):
            if len(steps := {push.step for push in pushes if not push.void}) > 1:
                return self._fail(
                    UserError(
                        f"workers are at different steps: {sorted(steps)}",
                        why="in sync mode all gradients of an update belong to one step",
                        remedy="resume all workers from the same checkpoint",
                    )
                )
            held.apply(pushes, self._policy)
            self._journal.applied(pushes, len(self._held), together=self._policy.still)
            for push in pushes:
                push.gradients = []  # a push is remembered until the next one, its memory is not
        for push in list(held.applied.values()):
            if self._policy.may_go_on(push, held.clocks, self.members.pushing):
                held.answered[push.rank] = held.applied.pop(push.rank)
                self._answer(self.members.by_rank[push.rank], held, push)
        return None

    def _ask(self, member: Member, header: Header, payload: Payload) -> None:
        held = self._slice(header)
        known = held.known(member.rank)
        if known is None or known.sequence < header.sequence:
            self._send(member.identity, header.reply(MessageKind.MISSING))
        elif member.rank in held.answered:
            self._answer(member, held, known)
        else:
            self._send(member.identity, header.reply(MessageKind.WAITING))

    def _answer(self, member: Member, held: SliceState, push: Push) -> None:
        header = Header(
            MessageKind.UPDATED, member.rank, member.incarnation, push.sequence, push.step, held.slice.number
        )
        self._send_parameters(member, held, header, push.rate, max(0, push.staleness))

    def _send_parameters(self, member: Member, held: SliceState, header: Header, rate: float, staleness: int) -> None:
        """The slice as it is now, whole: nothing updates it while this runs."""
        values, payload = held.memory, None
        if not member.shared and header.kind is MessageKind.UPDATED and self._job is not None and self._job.narrows:
            payload = memory.raw(held.narrowed(self._job.compress_pull).view(torch.uint8))
        elif not member.shared:
            payload = memory.raw(values)
        elif not self._policy.still:
            member.slot(held.slice).copy_(values.view(torch.uint8))
        told = Header(
            *(header.kind, header.worker, header.incarnation, header.sequence, header.step, header.slice),
            staleness=staleness,
            version=held.version,
            rate=rate,
        )
        self._send(member.identity, told, payload)

    def _values(self, member: Member, header: Header, payload: Payload) -> None:
        held = self._slice(header)
        held.memory.view(torch.uint8).copy_(self._received(member, held, header, payload))
        held.filled = True
        self._send(member.identity, header.reply(MessageKind.DONE))
        waiting, self._pulls = self._pulls, []
        for who, pull in waiting:
            self._pull(who, pull, None)

    def _pull(self, member: Member, header: Header, payload: Payload) -> None:
        held = self._slice(header)
        if held.filled:
            self._send_parameters(member, held, header.reply(MessageKind.PARAMETERS), 0.0, 0)
        else:
            self._pulls = [(who, pull) for who, pull in self._pulls if (who, pull) != (member, header)]
            self._pulls.append((member, header))
            self._send(member.identity, header.reply(MessageKind.WAITING))

    def _load(self, member: Member, header: Header, payload: Payload) -> None:
        self._slice(header).load(payload if payload is not None else memoryview(b""))
        self._send(member.identity, header.reply(MessageKind.DONE))

    def _state(self, member: Member, header: Header, payload: Payload) -> None:
        held = self._slice(header)
        state = held.state() if header.step < 0 else held.whole_before(header.step)
        self._send(member.identity, header.reply(MessageKind.STATES), state)

    # Sums

    def _reduce(self, member: Member, header: Header, payload: Payload) -> None:
        self._refuse_parted()
        if member.reduced is not None and member.reduced[0].sequence == header.sequence:
            return self._send(member.identity, *member.reduced)  # asked again: the answer got lost
        if payload is None or len(payload) % 8:
            raise Refused("length")
        if member.reducing == header:
            return self._send(member.identity, header.reply(MessageKind.WAITING))
        member.reducing = header
        self._reduces.add(header.slice, header.step, member.rank, np.frombuffer(bytes(payload), dtype="<f8"))
        return self._tell_sums()

    def _tell_sums(self) -> None:
        for ranks, total in self._reduces.complete(self.members.joined(), self.members.leaving):
            for rank in ranks:
                member = self.members.by_rank[rank]
                member.reduced = (member.reducing.reply(MessageKind.REDUCED), total.tobytes())
                self._send(member.identity, *member.reduced)

    def _send(self, identity: bytes, header: Header, payload: memoryview | bytes | None = None) -> None:
        # Where slices stand still until their readers push again, zmq may read them without a copy.
        frames = [identity, *self._seal.frames(header, payload)]
        try:
            self._socket.send_multipart(frames, copy=not self._policy.still)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:  # it is gone, or about to connect anew, and then asks again
                raise


def _address(frame: Any) -> str:
    """Where a message comes from; empty where that is this machine, by a socket in a folder."""
    try:
        return str(ip_address(frame.get("Peer-Address")))
    except ValueError:
        return ""


def _told(error: UserError) -> bytes:
    """An error for the worker to raise."""
    lost = isinstance(error, LostWorker)
    return as_json({"what": error.what, "why": error.why, "remedy": error.remedy, "lost": lost})
