"""A worker's parameters as slices on the servers: the first values go there, updated ones come back."""

from collections.abc import Mapping

import torch
from torch import Tensor

from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.servers import Servers
from phalanx.exchange.pserver.slices import Slice, part_of, views
from phalanx.exchange.pserver.to_half import HALF_TYPES, to_half
from phalanx.exchange.pserver.wire import MessageKind, ServerMessage


class ServerParameters:
    """Parameters of a model whose current values are on servers.

    `still` says that a slice does not change between a worker's pull and its next push, so it is read without a copy.
    `filled` says that the servers have parameters already; otherwise rank 0 sends them its own.
    """

    def __init__(
        self, params: Mapping[str, Tensor], job: ServerJob, servers: Servers, rank: int, *, still: bool, filled: bool
    ) -> None:
        self.params, self.job, self.servers = params, job, servers
        self.still, self._filled, self._rank = still, filled, rank
        self.pieces = {
            each.number: [part_of(params[piece.name].detach(), piece) for piece in each.pieces] for each in job.slices
        }
        self.outboxes = {each.number: self.views(each, servers.link(each).outbox(each)) for each in job.slices}
        self.versions = {each.number: 0 for each in job.slices}
        self.begun = False

    def views(self, slice_: Slice, memory: Tensor) -> list[Tensor]:
        """A slice's pieces over its memory."""
        return views(memory.view(torch.float32), slice_, self.job.layouts)

    def begin(self) -> None:
        """Before the first step, and not earlier: the caller may still load weights into the model."""
        if self.begun:
            return
        self.begun = True
        if self._rank == 0 and not self._filled:
            for each in self.job.slices:
                link = self.servers.link(each)
                torch._foreach_copy_(self.outboxes[each.number], self.pieces[each.number])
                link.request_slice(link.header(MessageKind.VALUES, each.number, each.bytes), each)
            self._filled = True
        self.pull()

    def restart(self, *, filled: bool = False) -> None:
        """Begin anew. Unless `filled`, rank 0 sends its weights: they belong to an optimizer state that was loaded."""
        self.begun, self._filled = False, filled

    def pull(self) -> None:
        """Copy all parameters from the servers, as they are now."""
        for each in self.job.slices:
            self.take(each, self.servers.request(MessageKind.PULL, each))

    @torch.no_grad()
    def take(self, slice_: Slice, reply: ServerMessage) -> None:
        """Copy a slice that a reply brings into the model."""
        kind = self.job.compress_pull if reply.header.kind is MessageKind.UPDATED else "none"
        values = self.servers.link(slice_).inbox(slice_, reply.body, self.still, HALF_TYPES[kind] or torch.float32)
        if kind != "none":  # shared memory has them in float32: rounded here, they are the same on one host or many
            values = to_half(values, kind).float()
        torch._foreach_copy_(self.pieces[slice_.number], self.views(slice_, values))
        self.versions[slice_.number] = reply.header.version

    def clear_gradients(self) -> None:
        for param in self.params.values():
            param.grad = None
