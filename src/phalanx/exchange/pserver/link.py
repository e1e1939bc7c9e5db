"""A trainer's connection to one server: joining, sending, and answers that are proven, fresh and in time."""

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
from phalanx.exchange.base import LostWorker
from phalanx.exchange.liveness import CONNECT_S, LivenessWatch, heartbeats
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.members import places_of
from phalanx.exchange.pserver.slices import Slice
from phalanx.exchange.pserver.wire import Header, MessageKind, Seal
from phalanx.net import shared_memory as memory
from phalanx.net.seal import MAX_MESSAGE_BYTES, Refused, as_json, from_json

_RESEND_S = 5.0  # after which a request is repeated: all of them may arrive twice, and the answer shows life
_LOOK_S = 0.5  # between looks at whether the server still lives

_ABOUT_PUSHES = (MessageKind.UPDATED, MessageKind.WAITING, MessageKind.MISSING)

Answer = tuple[Header, Any]  # header and payload


class Link:
    """One server, as one worker sees it."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        number: int,
        address: str,
        key: str,
        rank: int,
        timeout_s: float,
        peers: LivenessWatch | None = None,
    ) -> None:
        self._peers = peers
        self.number, self.address, self.rank, self._timeout_s = number, address, rank, timeout_s
        self.resend_s = min(_RESEND_S, timeout_s / 4)
        self.incarnation = secrets.randbits(63)
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.set_hwm(0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        for option, value in heartbeats(peers.silence_s if peers else timeout_s).items():
            self.socket.setsockopt(option, value)
        self.socket.setsockopt(zmq.ROUTING_ID, b"w" + self.incarnation.to_bytes(8, "little"))
        self._seal = Seal(key)
        self._watch: memory.ProcessWatch | None = None
        self._heard = time.monotonic()
        self._met = False  # whether it has ever answered
        self._up_since: float | None = None  # while it has not: since when a connection to it stands
        self._sequence = 0
        self._places: dict[int, int] = {}
        self._parameters: Tensor | None = None  # the server's own memory, where it is shared
        self.shared = False
        self._about_pushes: deque[Answer] = deque()
        self.alone = False  # whether other workers are known to be lost, so that no word of it is news
        self.bytes_sent = self.bytes_received = 0
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            raise UserError(
                f"{address} is not an address of a parameter server",
                why=str(error),
                remedy="write it as tcp://HOST:PORT or ipc:///PATH",
            ) from error

    def join(self, job: ServerJob) -> dict[str, Any]:
        """Prove the key, tell the job, share memory where possible. Returns the server's welcome."""
        mine = job.slices_of(self.number)
        self._places, size = places_of(mine)
        self._area = memory.create(size)
        told = as_json({"nonce": self.challenge(), "job": job.described(), "area": self._area.address})
        # Not repeated: a challenge is good for one answer. A lost one ends in the time-out.
        welcome = from_json(self.request(self.header(MessageKind.JOIN), told, repeat=False)[1])
        if self._peers is not None:
            self._peers.expect(self.address)
        self.shared = bool(welcome["shared"])
        if self.shared:
            self._parameters = memory.attach(welcome["area"], size)
            if self._parameters is None:
                raise UserError(
                    f"server {self.number} at {self.address} shares memory that this worker cannot see",
                    why="they run on one machine, but one of them in a container of its own",
                    remedy="start both in the same container",
                )
            self._watch = memory.ProcessWatch(int(welcome["area"]["pid"]))
        return welcome

    def challenge(self) -> str:
        """The server's question, whose answer proves that this message is no recording."""
        return str(from_json(self.request(self.header(MessageKind.HELLO), b"")[1])["nonce"])

    def outbox(self, slice_: Slice) -> Tensor:
        """Where a slice's gradient (or its values) is put before it is sent, as bytes."""
        start = self._places[slice_.number]
        return self._area.bytes[start : start + slice_.bytes]

    def inbox(self, slice_: Slice, payload: Any, still: bool, dtype: torch.dtype = torch.float32) -> Tensor:
        """Where a slice's parameters are, after an answer that brings them; of type `dtype` if they travelled."""
        if not self.shared:
            if payload is None or len(payload) != slice_.span * dtype.itemsize:
                raise self.trouble("sent a slice of the wrong size")
            return torch.frombuffer(payload, dtype=dtype)
        if still and self._parameters is not None:
            start = self._places[slice_.number]
            return self._parameters[start : start + slice_.bytes].view(torch.float32)
        return self.outbox(slice_).view(torch.float32)

    def header(self, kind: MessageKind, number: int = 0, length: int = 0) -> Header:
        """The header of a request, with a sequence number of its own."""
        self._sequence += 1
        return Header(kind, self.rank, self.incarnation, self._sequence, slice=number, length=length)

    def send(self, header: Header, payload: memoryview | bytes | None = None) -> None:
        frames = self._seal.frames(header, payload)
        self.bytes_sent += sum(len(frame) for frame in frames)
        self.socket.send_multipart(frames, copy=False)

    def send_slice(self, header: Header, slice_: Slice) -> None:
        """Send `header.length` bytes of the slice's outbox: a note where memory is shared, the bytes otherwise."""
        if self.shared:
            self.bytes_sent += header.length
            self.send(header)
        else:
            self.send(header, memory.raw(self.outbox(slice_)[: header.length]))

    def about_pushes(self) -> Answer | None:
        """The next answer to a push, if one is there: it may have come while something else was waited for."""
        return self._about_pushes.popleft() if self._about_pushes else self.receive()

    def receive(self) -> Answer | None:
        """The next answer, if one is there. Raises what the server reports."""
        while True:
            try:
                frames: list[Any] = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            payload = frames[1].buffer if len(frames) > 1 else None
            try:
                header = self._seal.unpack(frames[0].buffer, payload)
            except Refused:
                continue  # not from a server of this job
            if header.incarnation != self.incarnation:
                continue
            self._heard, self._met = time.monotonic(), True
            self.bytes_received += len(frames[0]) + len(payload or b"")
            if header.kind is MessageKind.FAILED:
                told = from_json(payload)
                if self.alone and told["lost"]:
                    continue  # known already
                failure = LostWorker if told["lost"] else UserError
                raise failure(told["what"], why=told["why"], remedy=told["remedy"])
            return header, payload

    def request(self, header: Header, payload: memoryview | bytes | None = None, repeat: bool = True) -> Answer:
        """Send and wait for the answer to this very message."""
        self.send(header, payload)
        return self._wait_for(header, lambda: self.send(header, payload) if repeat else None)

    def request_slice(self, header: Header, slice_: Slice) -> Answer:
        """The same with what lies in the slice's outbox."""
        self.send_slice(header, slice_)
        return self._wait_for(header, lambda: self.send_slice(header, slice_))

    def ask(self, push: Header) -> None:
        """What became of that push?"""
        self.send(replace(push, kind=MessageKind.ASK))

    def expect(self) -> None:
        """From now on the server owes an answer."""
        self._heard = time.monotonic()

    def _wait_for(self, header: Header, again: Callable[[], None]) -> Answer:
        self.expect()
        resend = time.monotonic() + self.resend_s
        while True:
            answer = self.receive()
            if answer is None:
                self.socket.poll(int(1000 * _LOOK_S))
                self.check_alive()
                if time.monotonic() > resend:
                    resend = time.monotonic() + self.resend_s
                    again()
            elif answer[0].kind in _ABOUT_PUSHES:
                self._about_pushes.append(answer)
            elif answer[0].sequence == header.sequence:
                return answer

    def check_alive(self) -> None:
        """Raise if the server's process has ended or has been silent for too long."""
        ended = self._watch is not None and self._watch.ended()
        if ended:
            raise self.trouble("has ended")
        lost = self._peers.lost(self.address) if self._peers is not None else None
        if lost is not None:
            raise self.trouble("is gone or silent", f"{lost.why}; ")
        if not self._met and self._peers is not None:
            self._check_answers(self._peers.is_up(self.address))
        if time.monotonic() - self._heard > self._timeout_s:
            raise self.trouble(f"has not answered for {self._timeout_s:g} s")

    def _check_answers(self, up: bool) -> None:
        """Who is connected, and never says a word, does not take this worker for one of its own."""
        now = time.monotonic()
        self._up_since = (self._up_since or now) if up else None
        if self._up_since is not None and now - self._up_since > CONNECT_S:
            raise self.trouble("does not answer", "it is there, and has another key, or is no server of this job; ")

    def trouble(self, happened: str, why: str = "") -> LostWorker:
        return LostWorker(
            f"parameter server {self.number} at {self.address} {happened}",
            why=f"{why}its parameters and optimizer state are there, so training cannot go on without it",
            remedy=f"see logs/server-{self.number}.jsonl and its output; check that all processes have the same "
            "PHALANX_KEY; phalanx train --resume goes on from the last checkpoint",
        )

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self.socket.close(linger=0)
