"""Gradients leave for the servers while backward produces them; updated parameters come back before the next step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from phalanx.exchange.base import Applied
from phalanx.exchange.pserver.compressor import Compressor
from phalanx.exchange.pserver.group import StepNumber
from phalanx.exchange.pserver.parameters import ServerParameters
from phalanx.exchange.pserver.slices import Slice, like, part_of
from phalanx.exchange.pserver.wire import Header, MessageKind


class PserverGradients:
    """Pushes each slice's gradient, and takes over the parameters that the servers reply with.

    `overlap` sends gradients during backward. It must be off where they are changed afterwards (fp16 loss scaling).
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: ServerParameters,
        step: StepNumber,
        compressor: Compressor | None,
        *,
        overlap: bool,
    ) -> None:
        self._model, self._parameters, self._step, self._compressor = model, parameters, step, compressor
        self.servers, self._job = parameters.servers, parameters.job
        self._overlap = overlap
        self._round = 1
        self._pushed: dict[int, Header] = {}  # this step's pushes, by slice
        self._to_come: dict[int, int] = {}  # by slice: gradients that backward has not produced yet
        self._may_push = False  # whether backward is in the last micro-batch of a step
        self._first = True  # whether the next micro-batch is the first of its step
        self._inside_s = 0.0
        self._counted = self.servers.traffic()
        self._hooks = self._watch_backward()

    def forward(self, images: Tensor) -> Tensor:
        self._parameters.begin()
        if self._first:  # what checkpoints and evaluation moved is not the step's traffic
            self._counted = self.servers.traffic()
        self._first = False
        output: Tensor = self._model(images)
        return output

    @contextmanager
    def accumulate(self, last: bool) -> Iterator[None]:
        self._may_push = last and self._overlap and self._step.known
        self._to_come = {each.number: len(each.pieces) for each in self._job.slices}
        try:
            yield
        finally:
            self._may_push = False

    def skip_step(self, images: Tensor) -> None:
        """Nothing to compute: `apply` tells the servers that this worker has no gradients."""
        self._parameters.begin()

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        self._parameters.begin()
        if self._pushed and self._step.number != step:
            raise AssertionError(f"gradients were pushed as those of step {self._step.number}, which is step {step}")
        self._step.number = step
        for each in reversed(self._job.slices):
            if each.number not in self._pushed:
                self._push(each)
        replies = self._collect()
        inside, self._inside_s = self._inside_s, 0.0
        sent, received = self.servers.traffic()
        return Applied(
            lr=_common_rate(replies),
            grad_norm=None,
            exchange_s=time.perf_counter() - begin + inside,
            update_s=0.0,
            inside_backward_s=inside,
            bytes_sent=sent - self._counted[0],
            bytes_received=received - self._counted[1],
            details={} if self._parameters.still else _staleness(replies),
        )

    def discard(self) -> None:
        """Tell the servers that this worker's step is void. In sync mode no worker's gradients are applied then."""
        self._parameters.begin()
        if self._pushed:
            raise AssertionError("gradients were pushed already: loss scaling needs overlap=False")
        for each in self._job.slices:
            self._send_push(each, MessageKind.VOID)
        self._collect()

    def drop(self, next_step: int) -> int | None:
        """Drop the gradients that are on their way, for a worker that joins again. Returns their step, if any are."""
        dropped = self._step.number if self._pushed else None
        self._round += 1
        self._pushed, self._first, self._inside_s = {}, True, 0.0
        self._step.number = next_step
        self._parameters.clear_gradients()
        return dropped

    def close(self) -> None:
        """Push nothing during backward any more."""
        for hook in self._hooks:
            hook.remove()

    def _watch_backward(self) -> list[torch.utils.hooks.RemovableHandle]:
        params = self._parameters.params
        slices_of: dict[str, list[Slice]] = {name: [] for name in params}
        for each in self._job.slices:
            for piece in each.pieces:
                slices_of[piece.name].append(each)

        def arrived(slices: list[Slice]) -> None:
            if not self._may_push:
                return
            begin = time.perf_counter()
            for each in slices:
                self._to_come[each.number] -= 1
                if self._to_come[each.number] == 0:
                    self._push(each)
            self._inside_s += time.perf_counter() - begin

        return [
            param.register_post_accumulate_grad_hook(lambda _, slices=slices_of[name]: arrived(slices))
            for name, param in params.items()
        ]

    @torch.no_grad()
    def _push(self, slice_: Slice) -> None:
        """Send a slice's gradient, and say which pieces have one."""
        grads = [self._parameters.params[piece.name].grad for piece in slice_.pieces]
        there = [
            (bit, part_of(like(self._job.layouts[piece.name], grad), piece))
            for bit, (piece, grad) in enumerate(zip(slice_.pieces, grads, strict=True))
            if grad is not None
        ]
        length = slice_.bytes
        if there and self._compressor is not None:
            length = self._compressor.encode(slice_, there, self.servers.link(slice_).outbox(slice_))
        elif there:
            outbox = self._parameters.outboxes[slice_.number]
            torch._foreach_copy_([outbox[bit] for bit, _ in there], [gradient for _, gradient in there])
        self._send_push(slice_, MessageKind.PUSH, sum(1 << bit for bit, _ in there), length)

    def _send_push(self, slice_: Slice, kind: MessageKind, present: int = 0, length: int = 0) -> None:
        link = self.servers.link(slice_)
        header = Header(
            kind,
            link.rank,
            link.incarnation,
            self._round,
            step=self._step.on_wire,
            slice=slice_.number,
            present=present,
            version=self._parameters.versions[slice_.number],
            length=length if present else 0,
        )
        self._pushed[slice_.number] = header
        self._dispatch(slice_, header)

    def _dispatch(self, slice_: Slice, header: Header) -> None:
        if header.present:
            self.servers.link(slice_).send_slice(header, slice_)
        else:
            self.servers.link(slice_).send(header)

    def _collect(self) -> list[Header]:
        """Wait for the replies to all pushes of this step, and take over the parameters that they bring."""
        replies: list[Header] = []
        open_ = dict(self._pushed)
        for link in self.servers.links:
            link.expect_reply()
        resend_s = self.servers.links[0].resend_s
        ask = time.monotonic() + resend_s
        while open_:
            replies += self._take_replies(open_)
            if open_:
                self.servers.wait()
            if open_ and time.monotonic() > ask:
                ask = time.monotonic() + resend_s
                for number, header in open_.items():
                    self.servers.link(self._job.slices[number]).ask(header)
        self._round += 1
        self._step.advance()
        self._pushed, self._first = {}, True
        self._parameters.clear_gradients()
        return replies

    def _take_replies(self, open_: dict[int, Header]) -> list[Header]:
        """Handle what has arrived, and take its slices out of `open_`."""
        replies = []
        for link in self.servers.links:
            while (reply := link.next_push_reply()) is not None:
                header = reply.header
                slice_ = self._job.slices[header.slice]
                if header.slice not in open_ or header.sequence != self._round:
                    continue  # a reply that was sent twice
                if header.kind is MessageKind.UPDATED:
                    self._parameters.take(slice_, reply)
                    replies.append(header)
                    del open_[header.slice]
                elif header.kind is MessageKind.MISSING:
                    self._dispatch(slice_, open_[header.slice])
        return replies


def _common_rate(replies: list[Header]) -> float:
    """The rate that the servers used. With damping it differs between slices: then the mean."""
    rates = [reply.rate for reply in replies if reply.rate]
    return sum(rates) / len(rates) if len(set(rates)) > 1 else next(iter(rates), 0.0)


def _staleness(replies: list[Header]) -> dict[str, float]:
    stale = [reply.staleness for reply in replies]
    return {"staleness_mean": sum(stale) / len(stale), "staleness_max": max(stale)}
