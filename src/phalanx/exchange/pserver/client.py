"""pserver: gradients leave for the servers while backward produces them, parameters come back before the next step."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig, OptimConfig
from phalanx.data.order import Share
from phalanx.errors import UserError
from phalanx.exchange.base import Applied, LostWorker, Rescued
from phalanx.exchange.compress.residuals import residuals_of
from phalanx.exchange.liveness import LivenessWatch, watch_servers
from phalanx.exchange.pserver import state as states
from phalanx.exchange.pserver.compressor import Compressor, wire_bytes
from phalanx.exchange.pserver.job import ServerJob, describe
from phalanx.exchange.pserver.reduce import LAST, Numbers, Topic
from phalanx.exchange.pserver.servers import Servers
from phalanx.exchange.pserver.slice_undo import VALUES
from phalanx.exchange.pserver.slices import Slice, like, part_of, refuse_global, views
from phalanx.exchange.pserver.to_half import NARROW, to_half
from phalanx.exchange.pserver.wire import Header, MessageKind
from phalanx.optim.schedule import Schedule


class PserverExchange:
    """The update happens on servers, on gradients from all workers.

    `overlap` sends gradients during backward. It must be off where they are changed afterwards (fp16 loss scaling).
    `peers` watches the servers; by default it is made here.
    `elastic` has servers keep each slice as it was before its last update, for `rescue`.
    `joined_step` is the step to go on with for a worker that comes back into a running job, and None otherwise.
    """

    syncs_inside = False

    def __init__(
        self,
        model: nn.Module,
        no_decay: Iterable[str],
        optim: OptimConfig,
        schedule: Schedule,
        exchange: ExchangeConfig,
        role: Role,
        *,
        micro_batches: int | None = None,
        overlap: bool = True,
        elastic: bool = False,
        peers: LivenessWatch | None = None,
    ) -> None:
        refuse_global(optim)
        self.share = Share(role.rank, role.world, optim.accumulate, micro_batches)
        self._model, self._overlap = model, overlap
        self._params = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._job = describe(self._params, no_decay, optim, schedule, exchange, role, elastic=elastic)
        self._still = self.lockstep = self._job.mode == "sync"
        self._peers = peers or watch_servers(role, exchange)
        self._servers = Servers(role, exchange.timeout_s, self._peers)
        welcomes = self._servers.join(self._job)
        self._filled = all(welcome["filled"] for welcome in welcomes)
        rejoined = any(welcome["rejoined"] for welcome in welcomes)
        # The first server's word counts: it is the one where workers meet.
        self.joined_step: int | None = welcomes[0]["step"] if rejoined else None

        slices = self._job.slices
        self._pieces = {
            each.number: [part_of(self._params[piece.name].detach(), piece) for piece in each.pieces] for each in slices
        }
        self._outboxes = {each.number: self._views(each, self._servers.link(each).outbox(each)) for each in slices}
        self._compressor = _compressor(self._job)
        self._versions = {each.number: 0 for each in slices}
        self._begun = False
        self._round = 1
        self._last = False  # no further step is made here
        self._step: int | None = None  # the step that is being computed, where known: gradients leave before `apply`
        self._pushed: dict[int, Header] = {}  # this step's pushes, by slice
        self._to_come: dict[int, int] = {}  # by slice: gradients that backward has not produced yet
        self._leaving = False  # whether this is the last micro-batch of a step, so that gradients may leave
        self._samples = 0
        self._inside_s = 0.0
        self._counted = self._servers.traffic()
        self._owed: list[Tensor] = []  # by slice: residuals at the last step boundary, where somebody marks it
        self._hooks = self._watch_backward()

    # A step

    def forward(self, images: Tensor) -> Tensor:
        self._begin()
        if self._samples == 0:  # the step's first: what checkpoints and evaluation moved is not the step's traffic
            self._counted = self._servers.traffic()
        self._samples += len(images)
        answer: Tensor = self._model(images)
        return answer

    @contextmanager
    def accumulate(self, last: bool) -> Iterator[None]:
        self._leaving = last and self._overlap and self._step is not None
        self._to_come = {each.number: len(each.pieces) for each in self._job.slices}
        try:
            yield
        finally:
            self._leaving = False

    def skip_step(self, images: Tensor) -> None:
        """Nothing to compute: `apply` sends word that this worker has no gradients."""
        self._begin()

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        self._begin()
        if self._pushed and self._step != step:
            raise AssertionError(f"gradients left as those of step {self._step}, which is step {step}")
        self._step = step
        for each in reversed(self._job.slices):
            if each.number not in self._pushed:
                self._push(each)
        answers = self._collect()
        inside, self._inside_s = self._inside_s, 0.0
        sent, received = self._servers.traffic()
        return Applied(
            lr=_common_rate(answers),
            grad_norm=None,
            exchange_s=time.perf_counter() - begin + inside,
            update_s=0.0,
            inside_backward_s=inside,
            bytes_sent=sent - self._counted[0],
            bytes_received=received - self._counted[1],
            details={} if self._still else _staleness(answers),
        )

    def discard(self) -> None:
        """Tell the servers that this worker's step is void. In sync mode nobody's gradients are applied then."""
        self._begin()
        if self._pushed:
            raise AssertionError("gradients have left already: loss scaling needs overlap=False")
        for each in self._job.slices:
            self._send_push(each, MessageKind.VOID)
        self._collect()

    def _watch_backward(self) -> list[torch.utils.hooks.RemovableHandle]:
        slices_of: dict[str, list[Slice]] = {name: [] for name in self._params}
        for each in self._job.slices:
            for piece in each.pieces:
                slices_of[piece.name].append(each)

        def arrived(slices: list[Slice]) -> None:
            if not self._leaving:
                return
            begin = time.perf_counter()
            for each in slices:
                self._to_come[each.number] -= 1
                if self._to_come[each.number] == 0:
                    self._push(each)
            self._inside_s += time.perf_counter() - begin

        return [
            param.register_post_accumulate_grad_hook(lambda _, slices=slices_of[name]: arrived(slices))
            for name, param in self._params.items()
        ]

    @torch.no_grad()
    def _push(self, slice_: Slice) -> None:
        """Send a slice's gradient, with word of which pieces have one."""
        grads = [self._params[piece.name].grad for piece in slice_.pieces]
        there = [
            (bit, part_of(like(self._job.layouts[piece.name], grad), piece))
            for bit, (piece, grad) in enumerate(zip(slice_.pieces, grads, strict=True))
            if grad is not None
        ]
        length = slice_.bytes
        if there and self._compressor is not None:
            length = self._compressor.encode(slice_, there, self._servers.link(slice_).outbox(slice_))
        elif there:
            outbox = self._outboxes[slice_.number]
            torch._foreach_copy_([outbox[bit] for bit, _ in there], [gradient for _, gradient in there])
        self._send_push(slice_, MessageKind.PUSH, sum(1 << bit for bit, _ in there), length)

    def _send_push(self, slice_: Slice, kind: MessageKind, present: int = 0, length: int = 0) -> None:
        link = self._servers.link(slice_)
        header = Header(
            kind,
            link.rank,
            link.incarnation,
            self._round,
            step=-1 if self._step is None else self._step,
            slice=slice_.number,
            samples=self._samples,
            present=present,
            version=self._versions[slice_.number],
            length=length if present else 0,
        )
        self._pushed[slice_.number] = header
        self._dispatch(slice_, header)

    def _dispatch(self, slice_: Slice, header: Header) -> None:
        if header.present:
            self._servers.link(slice_).send_slice(header, slice_)
        else:
            self._servers.link(slice_).send(header)

    def _collect(self) -> list[Header]:
        """Wait for the answers to all pushes of this step, and write the parameters that they bring."""
        answers: list[Header] = []
        open_ = dict(self._pushed)
        for link in self._servers.links:
            link.expect()
        ask = time.monotonic() + self._servers.links[0].resend_s
        while open_:
            for link in self._servers.links:
                while (answer := link.about_pushes()) is not None:
                    header, payload = answer
                    slice_ = self._job.slices[header.slice]
                    if header.slice not in open_ or header.sequence != self._round:
                        continue  # an answer given twice
                    if header.kind is MessageKind.UPDATED:
                        self._take(slice_, header, payload)
                        answers.append(header)
                        del open_[header.slice]
                    elif header.kind is MessageKind.MISSING:
                        self._dispatch(slice_, open_[header.slice])
            if open_ and not self._servers.wait() and time.monotonic() > ask:
                ask = time.monotonic() + self._servers.links[0].resend_s
                for number, header in open_.items():
                    self._servers.link(self._job.slices[number]).ask(header)
        self._round += 1
        self._step = None if self._step is None else self._step + 1
        self._pushed, self._samples = {}, 0
        for param in self._params.values():
            param.grad = None
        return answers

    # Parameters

    def _begin(self) -> None:
        """Before the first step, and not earlier: the caller may still load weights into the model."""
        if self._begun:
            return
        self._begun = True
        if self.share.rank == 0 and not self._filled:
            for each in self._job.slices:
                link = self._servers.link(each)
                torch._foreach_copy_(self._outboxes[each.number], self._pieces[each.number])
                link.request_slice(link.header(MessageKind.VALUES, each.number, each.bytes), each)
            self._filled = True
        self._pull()

    def _pull(self) -> None:
        """All parameters as the servers have them now."""
        for each in self._job.slices:
            self._take(each, *self._servers.request(MessageKind.PULL, each))

    @torch.no_grad()
    def _take(self, slice_: Slice, header: Header, payload: Any) -> None:
        kind = self._job.compress_pull if header.kind is MessageKind.UPDATED else "none"
        values = self._servers.link(slice_).inbox(slice_, payload, self._still, NARROW[kind] or torch.float32)
        if kind != "none":  # through shared memory they come whole, and are rounded here: the same on one host or many
            values = to_half(values, kind).float()
        torch._foreach_copy_(self._pieces[slice_.number], self._views(slice_, values))
        self._versions[slice_.number] = header.version

    # Things that all workers decide or sum together

    def _reduce(self, topic: Topic, numbers: Numbers) -> tuple[Numbers, int]:
        step = -1 if self._step is None else self._step
        return self._servers.reduce(topic, LAST if self._last else step, numbers)

    def sum(self, counts: list[float]) -> list[float]:
        total, _ = self._reduce(Topic.COUNTS, np.array(counts, dtype=np.float64))
        return [float(each) for each in total]

    def sync_step(self, wish: bool, counts: list[float]) -> tuple[bool, list[float]]:
        """In sync mode all workers stop after the same step. Otherwise nobody waits for the others."""
        if not self._still or self.share.world == 1:
            return wish, counts
        (wishes, *totals), _ = self._reduce(Topic.STEP, np.array([float(wish), *counts]))
        return wishes > 0, [float(each) for each in totals]

    def leave(self) -> None:
        """Workers that do not stop after the same step meet once more, and nobody waits for a step of this one."""
        if not self._still:
            self._servers.leave()
            self._last = True

    def sync_buffers(self) -> None:
        """Average the batch-norm statistics, which waits for all live workers; then nobody is pushing, so pull."""
        self._begin()
        buffers = [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]
        mine = torch.cat([torch.zeros(0).double(), *(buffer.detach().double().cpu().flatten() for buffer in buffers)])
        total, workers = self._reduce(Topic.STATISTICS, mine.numpy())
        start = 0
        for buffer in buffers:
            mean = torch.from_numpy(total[start : start + buffer.numel()] / workers)
            buffer.copy_(mean.view_as(buffer))
            start += buffer.numel()
        if not self._still or self._job.narrows:
            self._pull()

    # Checkpoints

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Whole on rank 0, empty elsewhere. Called by all: nobody goes on before it is read."""
        parts = []
        for each in self._job.slices if self.share.rank == 0 else ():
            _, payload = self._servers.request(MessageKind.STATE, each)
            parts.append((each, *states.unpack(payload)))
        if not self._still:
            self._reduce(Topic.BARRIER, np.zeros(0))
        return states.join(parts, self._job.layouts, set(self._job.exempt), self._job.optim.rates)

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Rank 0 gives the servers their parts; a worker that comes back leaves the running job as it is."""
        if self.joined_step is not None or self.share.rank != 0:
            return
        if self._begun and self.share.world > 1:
            raise AssertionError("a state is loaded before the first step: other workers compute already")
        for each in self._job.slices:
            part = states.part(each, tensors, scalars, self._job.layouts, set(self._job.exempt), self._job.optim.rates)
            self._servers.request(MessageKind.LOAD, each, states.pack(*part))
        self._begun = self._filled = False  # the model's weights belong to this state: they go to the servers again

    def residuals(self) -> dict[str, Tensor]:
        """Each worker's in its turn, as a sum to which the others add zeros."""
        found: dict[str, Tensor] = {}
        if self._compressor is None:
            return found
        for rank in range(self.share.world):
            for each in self._job.slices:
                mine = self._compressor.residual(each).double().numpy()
                total, _ = self._reduce(Topic.RESIDUALS, mine if rank == self.share.rank else np.zeros_like(mine))
                self._put_residual(found, rank, each, torch.tensor(total, dtype=torch.float32))
        return found

    def _put_residual(self, found: dict[str, Tensor], rank: int, slice_: Slice, flat: Tensor) -> None:
        for piece, part in zip(slice_.pieces, self._views(slice_, flat), strict=True):
            blank = torch.zeros_like(self._params[piece.name], requires_grad=False)
            part_of(found.setdefault(f"{rank}/{piece.name}", blank), piece).copy_(part)

    def load_residuals(self, tensors: Mapping[str, Tensor]) -> None:
        mine = residuals_of(tensors, self.share)
        if self._compressor is None or not mine:
            return
        for each in self._job.slices:
            for piece, part in zip(each.pieces, self._views(each, self._compressor.residual(each)), strict=True):
                part.copy_(part_of(like(self._job.layouts[piece.name], mine[piece.name]), piece))

    # After the loss of another worker

    def mark(self) -> None:
        if self._compressor is not None:
            self._owed = [self._compressor.residual(each).clone() for each in self._job.slices]

    def roll_back(self) -> None:
        for param in self._params.values():
            param.grad = None
        if self._compressor is not None:
            for each, owed in zip(self._job.slices, self._owed, strict=True):
                self._compressor.residual(each).copy_(owed)

    @torch.no_grad()
    def rescue(self, step: int) -> Rescued:
        """Slices may be a step apart, depending on what the lost worker still pushed: all are asked for the same one.

        The parameters come back too, since a part of them may be a step ahead.
        """
        for link in self._servers.links:
            link.alone = True
        parts = []
        for each in self._job.slices:
            link = self._servers.link(each)
            _, payload = link.request(replace(link.header(MessageKind.STATE, each.number), step=step))
            if not payload:
                raise LostWorker(f"server {link.number} does not have slice {each.number} as it was before step {step}")
            tensors, scalars = states.unpack(payload)
            torch._foreach_copy_(self._pieces[each.number], self._views(each, tensors.pop(VALUES)))
            parts.append((each, tensors, scalars))
        return Rescued(
            *states.join(parts, self._job.layouts, set(self._job.exempt), self._job.optim.rates), self._my_residuals()
        )

    def _my_residuals(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self._compressor is not None:
            for each in self._job.slices:
                self._put_residual(found, self.share.rank, each, self._compressor.residual(each))
        return found

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._servers.close()
        self._peers.close()

    def _views(self, slice_: Slice, memory: Tensor) -> list[Tensor]:
        return views(memory.view(torch.float32), slice_, self._job.layouts)


def _compressor(job: ServerJob) -> Compressor | None:
    codec = job.codec()
    if codec is None:
        return None
    for each in job.slices:
        if wire_bytes(codec, each) > each.bytes:
            raise UserError(
                f"compression {job.compress} makes gradients larger",
                why=f"{each.bytes} bytes would become {wire_bytes(codec, each)}: an index costs as much as a value",
                remedy="send a smaller share, such as topk:0.01, or --compress none",
            )
    return Compressor(job)


def _common_rate(answers: list[Header]) -> float:
    """The rate that the servers used. With damping it differs between slices: then the mean."""
    rates = [answer.rate for answer in answers if answer.rate]
    return sum(rates) / len(rates) if len(set(rates)) > 1 else next(iter(rates), 0.0)


def _staleness(answers: list[Header]) -> dict[str, float]:
    stale = [answer.staleness for answer in answers]
    return {"staleness_mean": sum(stale) / len(stale), "staleness_max": max(stale)}
