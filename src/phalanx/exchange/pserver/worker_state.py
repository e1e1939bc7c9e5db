"""What a worker saves of a job with parameter servers: optimizer state, compression residuals, a step to go back to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from phalanx.exchange.base import LostWorker, Rescued
from phalanx.exchange.compress.residuals import residuals_of
from phalanx.exchange.local import average_buffers
from phalanx.exchange.pserver import state as states
from phalanx.exchange.pserver.compressor import Compressor
from phalanx.exchange.pserver.group import PserverGroup
from phalanx.exchange.pserver.parameters import ServerParameters
from phalanx.exchange.pserver.reduce import Topic
from phalanx.exchange.pserver.slice_undo import VALUES
from phalanx.exchange.pserver.slices import Slice, like, part_of
from phalanx.exchange.pserver.wire import MessageKind


class PserverState:
    """The optimizer's state, which the servers have. A worker that joined a running job (`joined`) loads nothing."""

    def __init__(self, model: nn.Module, parameters: ServerParameters, group: PserverGroup, *, joined: bool) -> None:
        self._model, self._parameters, self._group, self._joined = model, parameters, group, joined
        self._servers, self._job = parameters.servers, parameters.job

    def sync_buffers(self) -> None:
        """Averaging waits for all live workers. No worker is pushing then, so parameters can be pulled."""
        self._parameters.begin()
        average_buffers(self._model, self._group)
        if not self._group.lockstep or self._job.pulls_half:
            self._parameters.pull()

    def optimizer_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Whole on rank 0, empty elsewhere. No worker continues before rank 0 has read it."""
        parts = []
        for each in self._job.slices if self._group.share.rank == 0 else ():
            reply = self._servers.request(MessageKind.STATE, each)
            parts.append((each, *states.unpack(reply.body)))
        if not self._group.lockstep:
            self._group.reduce(Topic.BARRIER, np.zeros(0))
        return states.join(parts, self._job.layouts, set(self._job.exempt), self._job.optim.rates)

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Rank 0 gives each server its part."""
        if self._joined or self._group.share.rank != 0:
            return
        if self._parameters.begun and self._group.share.world > 1:
            raise AssertionError("a state is loaded before the first step: other workers compute already")
        for each in self._job.slices:
            part = states.part(each, tensors, scalars, self._job.layouts, set(self._job.exempt), self._job.optim.rates)
            self._servers.request(MessageKind.LOAD, each, states.pack(*part))
        self._parameters.restart()


class PserverResiduals:
    """What each worker's compressor holds back."""

    def __init__(self, compressor: Compressor, parameters: ServerParameters, group: PserverGroup) -> None:
        self._compressor, self._parameters, self._group = compressor, parameters, group

    def residuals(self) -> dict[str, Tensor]:
        """Those of one worker after another, each as a sum to which the others add zeros."""
        found: dict[str, Tensor] = {}
        share = self._group.share
        for rank in range(share.world):
            for each in self._parameters.job.slices:
                mine = self._compressor.residual(each).double().numpy()
                total, _ = self._group.reduce(Topic.RESIDUALS, mine if rank == share.rank else np.zeros_like(mine))
                self._put(found, rank, each, torch.tensor(total, dtype=torch.float32))
        return found

    def own(self) -> dict[str, Tensor]:
        """This worker's residuals, as `RANK/parameter`."""
        found: dict[str, Tensor] = {}
        for each in self._parameters.job.slices:
            self._put(found, self._group.share.rank, each, self._compressor.residual(each))
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        mine = residuals_of(tensors, self._group.share)
        if not mine:
            return
        job = self._parameters.job
        for each in job.slices:
            parts = self._parameters.views(each, self._compressor.residual(each))
            for piece, part in zip(each.pieces, parts, strict=True):
                part.copy_(part_of(like(job.layouts[piece.name], mine[piece.name]), piece))

    def snapshot(self) -> list[Tensor]:
        """A copy by slice, for `restore`."""
        return [self._compressor.residual(each).clone() for each in self._parameters.job.slices]

    def restore(self, snapshot: list[Tensor]) -> None:
        for each, values in zip(self._parameters.job.slices, snapshot, strict=True):
            self._compressor.residual(each).copy_(values)

    def _put(self, found: dict[str, Tensor], rank: int, slice_: Slice, flat: Tensor) -> None:
        for piece, part in zip(slice_.pieces, self._parameters.views(slice_, flat), strict=True):
            blank = torch.zeros_like(self._parameters.params[piece.name], requires_grad=False)
            part_of(found.setdefault(f"{rank}/{piece.name}", blank), piece).copy_(part)


class PserverRecovery:
    """Asks the servers for the last completed step, which they keep in an elastic job in sync mode."""

    def __init__(self, parameters: ServerParameters, residuals: PserverResiduals | None) -> None:
        self._parameters, self._residuals = parameters, residuals
        self._marked: list[Tensor] = []  # residuals at the last step boundary, by slice

    def mark(self) -> None:
        if self._residuals is not None:
            self._marked = self._residuals.snapshot()

    def roll_back(self) -> None:
        self._parameters.clear_gradients()
        if self._residuals is not None:
            self._residuals.restore(self._marked)

    @torch.no_grad()
    def rescue(self, step: int) -> Rescued:
        """Slices may be a step apart, as the lost worker pushed some and not others: ask for the same step of all.

        Parameters come back too, since some of them may be a step ahead.
        """
        servers, job = self._parameters.servers, self._parameters.job
        for link in servers.links:
            link.ignore_losses = True
        parts = []
        for each in job.slices:
            link = servers.link(each)
            reply = link.request(replace(link.header(MessageKind.STATE, each.number), step=step))
            if not reply.body:
                raise LostWorker(f"server {link.number} does not have slice {each.number} as it was before step {step}")
            tensors, scalars = states.unpack(reply.body)
            values = self._parameters.views(each, tensors.pop(VALUES))
            torch._foreach_copy_(self._parameters.pieces[each.number], values)
            parts.append((each, tensors, scalars))
        residuals = self._residuals.own() if self._residuals is not None else {}
        return Rescued(*states.join(parts, job.layouts, set(job.exempt), job.optim.rates), residuals)
