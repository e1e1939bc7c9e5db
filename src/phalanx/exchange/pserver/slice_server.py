"""The slices of one server: gradients arrive, the policy says when they become an update, parameters go back."""

from collections.abc import Callable
from dataclasses import replace

import torch
from safetensors import SafetensorError
from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.compress.codec import BadPayload
from phalanx.exchange.pserver.compressor import decode, wire_bytes
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.journal import Journal
from phalanx.exchange.pserver.members import Member, Members, places_of
from phalanx.exchange.pserver.policy import Push, make_policy
from phalanx.exchange.pserver.slice_state import SliceState
from phalanx.exchange.pserver.slices import views
from phalanx.exchange.pserver.wire import Header, MessageKind, ServerMessage
from phalanx.net import shared_memory as memory
from phalanx.net.control import Refused
from phalanx.net.request_server import RequestServer


class SliceServer:
    """The slices of a job that one server has. `fail` ends the job with an error for all workers."""

    def __init__(
        self,
        job: ServerJob,
        number: int,
        members: Members,
        requests: RequestServer[Header],
        journal: Journal,
        fail: Callable[[UserError], None],
    ) -> None:
        self.job, self._members, self._requests, self._journal, self._fail = job, members, requests, journal, fail
        self.policy = make_policy(job.mode, job.world, job.damping)
        self._codec = job.codec()
        mine = job.slices_of(number)
        self.places, self.num_bytes = places_of(mine)
        self.area = memory.create(self.num_bytes)
        self._states: dict[int, SliceState] = {}
        for each in mine:
            start = self.places[each.number]
            params = self.area.bytes[start : start + each.bytes].view(torch.float32)
            self._states[each.number] = SliceState(
                *(each, params, job.layouts, set(job.exempt), job.optim, job.schedule),
                keep_previous=job.elastic and self.policy.still,
            )
        self._pulls: list[tuple[Member, ServerMessage]] = []  # wait for the first parameters
        self._reached = 0  # the furthest step that any worker pushed, plus 1

    def __len__(self) -> int:
        return len(self._states)

    @property
    def filled(self) -> bool:
        """Whether the parameters have arrived."""
        return all(state.filled for state in self._states.values())

    @property
    def busy(self) -> bool:
        """Whether a worker waits for another one's gradients, or for the first parameters."""
        return bool(self._pulls) or any(state.arrived or state.applied for state in self._states.values())

    def step_to_join(self) -> int:
        """Where a worker that comes back continues: with the slowest of the others, so that none waits for it."""
        clocks = [state.clocks.get(rank, 0) for state in self._states.values() for rank in self._members.live]
        return min(clocks, default=self._reached)

    def prepare(self, member: Member, step: int | None) -> None:
        """Make room for a worker's gradients. `step` is where it comes back into the job."""
        for number, state in self._states.items():
            # Plain gradients are used where they arrive; compressed ones are decoded to a place of their own.
            plain = self._codec is None
            flat = member.slot(state.slice).view(torch.float32) if plain else torch.zeros(state.slice.span)
            member.decoded[number] = flat
            member.gradients[number] = views(flat, state.slice, self.job.layouts)
            if step is not None:
                state.clocks[member.rank] = step

    def forget(self, rank: int) -> None:
        """A worker has left the job."""
        self._pulls = [(member, message) for member, message in self._pulls if member.rank != rank]
        for state in self._states.values():
            state.forget(rank)

    def drop_pushes(self) -> None:
        """Make no further update."""
        for state in self._states.values():
            state.arrived.clear()

    def advance_all(self) -> None:
        """After a worker has left: make the updates and send the replies that waited for it."""
        for state in self._states.values():
            self._advance(state)

    # Gradients

    def push(self, member: Member, message: ServerMessage) -> None:
        header, state = message.header, self._state_of(message)
        known = state.known(member.rank)
        if known is not None and header.sequence <= known.sequence:
            self._journal.duplicates += 1
            return self.ask(member, message)
        gradients: list[Tensor | None] = [None] * len(state.slice.pieces)
        if header.present and header.kind is MessageKind.PUSH:
            there = self._gradients(member, state, message)
            gradients = [each if header.present >> bit & 1 else None for bit, each in enumerate(there)]
        void = header.kind is MessageKind.VOID
        state.arrive(Push(member.rank, header.sequence, header.step, header.version, gradients, void))
        self._reached = max(self._reached, header.step + 1)
        return self._advance(state)

    def ask(self, member: Member, message: ServerMessage) -> None:
        """Tell a worker what became of a push."""
        header, state = message.header, self._state_of(message)
        known = state.known(member.rank)
        if known is None or known.sequence < header.sequence:
            self._requests.send(member.identity, header.reply(MessageKind.MISSING))
        elif member.rank in state.answered:
            self._reply(member, state, known)
        else:
            self._requests.send(member.identity, header.reply(MessageKind.WAITING))

    def _gradients(self, member: Member, state: SliceState, message: ServerMessage) -> list[Tensor]:
        """A push's gradient by piece, decoded; without a copy where it is plain."""
        sent = self._received(member, state, message)
        flat = member.decoded[message.header.slice]
        if self._codec is not None:
            try:
                decode(self._codec, state.slice, sent, flat)
            except BadPayload as error:
                raise Refused("payload") from error
        elif message.body is not None:
            if sent.data_ptr() % 4 == 0:
                return views(sent.view(torch.float32), state.slice, self.job.layouts)
            flat.view(torch.uint8).copy_(sent)  # zmq puts small messages anywhere
        return member.gradients[message.header.slice]

    def _received(self, member: Member, state: SliceState, message: ServerMessage) -> Tensor:
        """The bytes of a slice: the message's body, or those in the worker's slot."""
        header, expected = message.header, state.slice.bytes
        if self._codec is not None and header.kind is MessageKind.PUSH:
            expected = wire_bytes(self._codec, state.slice)
        if header.length != expected or (message.body is None and not member.shared):
            raise Refused("length")
        if message.body is not None:
            return torch.frombuffer(message.body, dtype=torch.uint8)
        return member.slot(state.slice)[:expected]

    def _advance(self, state: SliceState) -> None:
        """Apply what is due, then reply to the workers that may go on."""
        while pushes := self.policy.due(state.arrived, self._members.pushing):
            if len(steps := {push.step for push in pushes if not push.void}) > 1:
                return self._fail(
                    UserError(
                        f"workers are at different steps: {sorted(steps)}",
                        why="in sync mode all gradients of an update belong to one step",
                        remedy="resume all workers from the same checkpoint",
                    )
                )
            state.apply(pushes, self.policy)
            self._journal.applied(pushes, len(self._states), together=self.policy.still)
            for push in pushes:
                push.gradients = []  # a push is remembered until the next one, its memory is not
        for push in list(state.applied.values()):
            if self.policy.may_go_on(push, state.clocks, self._members.pushing):
                state.answered[push.rank] = state.applied.pop(push.rank)
                self._reply(self._members.by_rank[push.rank], state, push)
        return None

    def _reply(self, member: Member, state: SliceState, push: Push) -> None:
        header = Header(
            *(MessageKind.UPDATED, member.rank, member.incarnation, push.sequence, push.step, state.slice.number),
            staleness=max(0, push.staleness),
            version=state.version,
            rate=push.rate,
        )
        self._send_parameters(member, state, header)

    # Parameters and optimizer state

    def values(self, member: Member, message: ServerMessage) -> None:
        """Take the first parameters, and reply to the pulls that wait for them."""
        state = self._state_of(message)
        state.memory.view(torch.uint8).copy_(self._received(member, state, message))
        state.filled = True
        self._requests.send(member.identity, message.header.reply(MessageKind.DONE))
        waiting, self._pulls = self._pulls, []
        for puller, pull in waiting:
            self.pull(puller, pull)

    def pull(self, member: Member, message: ServerMessage) -> None:
        header, state = message.header, self._state_of(message)
        if state.filled:
            reply = replace(header.reply(MessageKind.PARAMETERS), version=state.version)
            return self._send_parameters(member, state, reply)
        others = [(puller, pull) for puller, pull in self._pulls if puller is not member or pull.header != header]
        self._pulls = [*others, (member, message)]
        return self._requests.send(member.identity, header.reply(MessageKind.WAITING))

    def load(self, member: Member, message: ServerMessage) -> None:
        state = self._state_of(message)
        try:
            state.load(message.body if message.body is not None else memoryview(b""))
        except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise UserError(
                "the optimizer's state cannot be loaded",
                why=f"it is damaged, or of another version ({type(error).__name__}: {str(error)[:200]})",
                remedy="resume from an earlier checkpoint, or start a new run with --init-from",
            ) from error
        self._requests.send(member.identity, message.header.reply(MessageKind.DONE))

    def state(self, member: Member, message: ServerMessage) -> None:
        """Send a slice's optimizer state: as it is now, or all of the slice as it was before a step."""
        header, state = message.header, self._state_of(message)
        packed = state.state() if header.step < 0 else state.before(header.step)
        self._requests.send(member.identity, header.reply(MessageKind.STATES), body=packed, copy=False)

    def _state_of(self, message: ServerMessage) -> SliceState:
        state = self._states.get(message.header.slice)
        if state is None:
            raise Refused("slice")
        return state

    def _send_parameters(self, member: Member, state: SliceState, header: Header) -> None:
        """The slice as it is now, whole: nothing updates it while this runs."""
        body = None
        if not member.shared and header.kind is MessageKind.UPDATED and self.job.pulls_half:
            body = memory.raw(state.half(self.job.compress_pull).view(torch.uint8))
        elif not member.shared:
            body = memory.raw(state.memory)
        elif not self.policy.still:
            member.slot(state.slice).copy_(state.memory.view(torch.uint8))
        # Where slices stand still until their readers push again, zmq may read them without a copy.
        self._requests.send(member.identity, header, body=body, copy=not self.policy.still)
