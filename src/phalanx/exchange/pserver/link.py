"""A worker's connection to one parameter server: joining it, requests, and replies that come in time."""

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import zmq
from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.base import GivenUp, LostWorker, PlaceTaken
from phalanx.exchange.liveness import CONNECT_S, Ending, LivenessWatch, heartbeats
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.members import places_of
from phalanx.exchange.pserver.slices import Slice
from phalanx.exchange.pserver.wire import WIRE, Header, MessageKind, ServerMessage
from phalanx.machine.process_state import hindrance
from phalanx.net import shared_memory as memory
from phalanx.net.client_channel import ClientChannel
from phalanx.net.code import CodeReport
from phalanx.net.control import Refused, as_json, from_json
from phalanx.net.encryption import Encrypt, encrypts
from phalanx.net.messages import Buffer, unpack_error
from phalanx.net.waiting import say

_RESEND_S = 5.0  # after which a request is repeated: all of them may arrive twice, and the reply shows life
_LOOK_S = 0.5  # between looks at whether the server still lives
_LONGEST_LOOK_S = 5.0  # that counts as waiting: in a longer pause this process was stopped, not the server

_PUSH_REPLIES = (MessageKind.UPDATED, MessageKind.WAITING, MessageKind.MISSING)


class Link:
    """One server, as one worker sees it. `watch` is over all servers."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        number: int,
        address: str,
        key: str,
        rank: int,
        timeout_s: float,
        watch: LivenessWatch | None = None,
        encrypt: Encrypt = "auto",
    ) -> None:
        self._watch = watch
        self.patient = False  # whether a server that cannot be reached may come back: the others go on meanwhile
        self.number, self.address, self.rank, self._timeout_s = number, address, rank, timeout_s
        self.resend_s = min(_RESEND_S, timeout_s / 4)
        self.incarnation = secrets.randbits(63)
        silence_s = watch.silence_s if watch else timeout_s
        options: dict[zmq.SocketOption, int | bytes] = {
            **heartbeats(silence_s),
            **{zmq.SNDHWM: 0, zmq.RCVHWM: 0},
            zmq.ROUTING_ID: b"w" + self.incarnation.to_bytes(8, "little"),
        }
        self.channel = ClientChannel(
            context, address, key, encrypt=encrypts(encrypt, address), options=options, silence_s=silence_s
        )
        self.channel.connect("parameter server", "tcp://HOST:PORT or ipc:///PATH")
        self._process: memory.ProcessWatch | None = None  # the server's, where it is on this machine
        self._waited_s, self._looked = 0.0, time.monotonic()
        self._cut_off: float | None = None  # when it was lost and its host could not be reached, at last
        self._lost_since: float | None = None
        self._ever_heard = False
        self._up_since: float | None = None  # while it has never replied: since when it is connected
        self._sequence = 0
        self._places: dict[int, int] = {}
        self._parameters: Tensor | None = None  # the server's own memory, where it is shared
        self.shared = False
        self.stopping = False  # whether the server asks its workers to save and leave
        self._push_replies: deque[ServerMessage] = deque()
        self._area: memory.SharedMemory | None = None
        self._earlier: list[int] = []  # incarnations under which this process was taken for lost
        self.ignore_losses = False  # whether this worker knows already that others are lost
        self.bytes_sent = self.bytes_received = 0

    # Joining

    def join(self, job: ServerJob) -> dict[str, Any]:
        """Describe the job, share memory where possible. Returns the server's welcome."""
        self.hello()  # a sign of life: the welcome takes as long as making the optimizer
        self._places, size = places_of(job.slices_of(self.number))
        self._area = self._area or memory.create(size)
        described = {"job": job.described(), "area": self._area.address}
        described["code"] = CodeReport.of(f"trainer-{self.rank}").to_data()
        joining = as_json({**described, "own": self._earlier} if self._earlier else described)
        welcome = from_json(self.request(self.header(MessageKind.JOIN), joining).control)
        if self._watch is not None:
            self._watch.expect(self.address)
        self.shared = bool(welcome["shared"])
        if self.shared:
            self._parameters = memory.attach(welcome["area"], size)
            if self._parameters is None:
                raise UserError(
                    f"server {self.number} at {self.address} shares memory that this worker cannot see",
                    why="they run on one machine, but one of them in a container of its own",
                    remedy="start both in the same container",
                )
            if self._process is None:
                self._process = memory.ProcessWatch(int(welcome["area"]["pid"]))
        return welcome

    def rejoin(self, job: ServerJob) -> dict[str, Any]:
        """Join again, as a new incarnation, after the server has taken this worker for lost."""
        self._earlier.append(self.incarnation)
        self.incarnation = secrets.randbits(63)
        self._push_replies.clear()
        return self.join(job)

    def hello(self) -> None:
        """Wait until the server replies; a process that is no server of this job does not."""
        self.request(self.header(MessageKind.HELLO))

    # Memory of slices

    def outbox(self, slice_: Slice) -> Tensor:
        """Where a slice's gradient (or its values) is put before it is sent, as bytes."""
        assert self._area is not None
        start = self._places[slice_.number]
        return self._area.bytes[start : start + slice_.bytes]

    def inbox(self, slice_: Slice, body: Any, still: bool, dtype: torch.dtype = torch.float32) -> Tensor:
        """Where a slice's parameters are, after a reply that brings them; of type `dtype` if they were sent."""
        if not self.shared:
            if body is None or len(body) != slice_.span * dtype.itemsize:
                raise self.trouble("sent a slice of the wrong size")
            return torch.frombuffer(body, dtype=dtype)
        if still and self._parameters is not None:
            start = self._places[slice_.number]
            return self._parameters[start : start + slice_.bytes].view(torch.float32)
        return self.outbox(slice_).view(torch.float32)

    # Sending

    def header(self, kind: MessageKind, number: int = 0, length: int = 0) -> Header:
        """The header of a request, with a sequence number of its own."""
        self._sequence += 1
        return Header(kind, self.rank, self.incarnation, self._sequence, slice=number, length=length)

    def send(self, header: Header, control: bytes = b"", body: Buffer | None = None) -> None:
        frames = WIRE.frames(header, control, body)
        self.bytes_sent += sum(len(frame) for frame in frames)
        self.channel.send_multipart(frames, copy=False)

    def send_slice(self, header: Header, slice_: Slice) -> None:
        """Send `header.length` bytes of the slice's outbox: a note where memory is shared, the bytes otherwise."""
        if self.shared:
            self.bytes_sent += header.length
            self.send(header)
        else:
            self.send(header, body=memory.raw(self.outbox(slice_)[: header.length]))

    def ask(self, push: Header) -> None:
        """Ask what became of a push."""
        self.send(replace(push, kind=MessageKind.ASK))

    # Requests and replies

    def request(self, header: Header, control: bytes = b"", body: Buffer | None = None) -> ServerMessage:
        """Send, again now and then, and wait for the reply to this very message."""
        self.send(header, control, body)
        return self._wait_for(header, lambda: self.send(header, control, body))

    def request_slice(self, header: Header, slice_: Slice) -> ServerMessage:
        """The same with the bytes in the slice's outbox."""
        self.send_slice(header, slice_)
        return self._wait_for(header, lambda: self.send_slice(header, slice_))

    def next_push_reply(self) -> ServerMessage | None:
        """The next reply to a push, if one is there: it may have come during another request."""
        if self._push_replies:
            return self._push_replies.popleft()
        while (message := self.receive()) is not None:
            if message.header.kind in _PUSH_REPLIES:
                return message  # anything else replies to a request that was repeated and has its reply
        return None

    def receive(self) -> ServerMessage | None:
        """The next reply, if one is there. Raises the error that the server reports."""
        while True:
            try:
                frames = self.channel.recv_multipart()
            except zmq.Again:
                return None
            try:
                message = WIRE.unpack(frames)
            except Refused:
                continue  # not from a server of this job
            if message.header.incarnation != self.incarnation:
                continue
            self.expect_reply()
            self._ever_heard = True
            self.bytes_received += sum(len(frame) for frame in frames)
            if message.header.kind is MessageKind.GIVEN_UP:
                raise given_up(self.rank, str(from_json(message.control).get("after")))
            if message.header.kind is MessageKind.STOPPING:
                self.stopping = True
                continue
            if message.header.kind is not MessageKind.FAILED:
                return message
            error = unpack_error(message.control, LostWorker, PlaceTaken)
            if not (self.ignore_losses and isinstance(error, LostWorker)):
                raise error

    def expect_reply(self) -> None:
        """From now on the server has to reply in time."""
        self._waited_s, self._looked = 0.0, time.monotonic()

    def _wait_for(self, header: Header, again: Callable[[], None]) -> ServerMessage:
        self.expect_reply()
        resend = time.monotonic() + self.resend_s
        while True:
            message = self.receive()
            if message is None:
                self.channel.poll(int(1000 * _LOOK_S))
                self.check_alive()
                if time.monotonic() > resend:
                    resend = time.monotonic() + self.resend_s
                    again()
            elif message.header.kind in _PUSH_REPLIES:
                self._push_replies.append(message)
            elif message.header.sequence == header.sequence and message.header.kind is not MessageKind.SUMMING:
                return message

    # Liveness

    def check_alive(self) -> None:
        """Raise if the server's process has ended or has been silent for too long."""
        if self._process is not None and self._process.ended():
            raise self.trouble("has ended")
        if self._watch is not None:
            self._check_lost(self._watch)
        if not self._ever_heard and self._watch is not None:
            self._check_replies(self._watch.is_up(self.address))
        now = time.monotonic()
        self._waited_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        if self._waited_s > self._timeout_s:
            raise self.trouble(f"has not answered for {self._timeout_s:g} s")

    def _check_lost(self, watch: LivenessWatch) -> None:
        """Raise if the server is lost. One that cannot be reached may be waited for: a network that is cut heals."""
        lost = watch.lost(self.address)
        if lost is None:
            self._cut_off = self._lost_since = None
            return
        ending, now = watch.ending(self.address), time.monotonic()
        self._lost_since = self._lost_since or now
        if self.patient and ending is Ending.UNREACHABLE:
            if self._cut_off is None:
                say(f"{lost.what}: {lost.why}; waiting for it, at most {self._timeout_s:g} s")
            self._cut_off = now
        # Once the network is mended, connections need a moment to come back. That may be at the first look already.
        mending = self._cut_off is not None and now - self._cut_off < watch.silence_s
        mending = mending or (self.patient and now - self._lost_since < watch.silence_s / 2)
        if ending is Ending.ENDED or not mending:
            hindered = hindrance(self._process.pid) if self._process is not None else ""
            raise self.trouble(hindered or "is gone or silent", f"{lost.why}; ")

    def _check_replies(self, up: bool) -> None:
        """A server that refuses the key, or is connected and never replies, does not accept this worker."""
        now = time.monotonic()
        self._up_since = (self._up_since or now) if up else None
        refused = self._watch is not None and self._watch.has_another_key(self.address)
        if refused or (self._up_since is not None and now - self._up_since > CONNECT_S):
            raise self.trouble("does not answer", "it is there, and has another key, or is no server of this job; ")

    def trouble(self, happened: str, why: str = "") -> LostWorker:
        own = self._watch.own_silence.loss() if self._watch is not None else None
        return own or LostWorker(
            f"parameter server {self.number} at {self.address} {happened}",
            why=f"{why}its parameters and optimizer state are there, so training cannot go on without it",
            remedy=f"see logs/server-{self.number}.jsonl and its output; check that all processes have the same "
            "PHALANX_KEY; phalanx train --resume goes on from the last checkpoint",
            lost=f"server-{self.number}",
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self.channel.close()


def given_up(rank: int, after: str) -> GivenUp:
    """The error for a worker that a server took for lost."""
    return GivenUp(
        f"trainer-{rank} was taken for lost {after}",
        why="it was stopped, or cut off from the parameter servers, which went on without it",
        remedy="phalanx train --resume goes on from the last checkpoint",
        lost=f"trainer-{rank}",
    )
