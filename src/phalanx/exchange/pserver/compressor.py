"""Gradients on their way to a server in fewer bytes: the job's codec, slice by slice, with what it left out so far."""

import torch
from torch import Tensor

from phalanx.exchange.pserver.job import Job
from phalanx.exchange.pserver.slices import Slice, views


class Compressor:
    """One codec and, for each slice, a residual: what was not sent takes part in the next push."""

    def __init__(self, job: Job) -> None:
        codec = job.codec()
        assert codec is not None
        self._codec, self._layouts = codec, job.layouts
        self._residuals = {each.number: torch.zeros(each.span) for each in job.slices}
        self._staging = torch.zeros(max(each.span for each in job.slices))

    def residual(self, slice_: Slice) -> Tensor:
        """What this worker still owes of a slice; changing it changes what is owed."""
        return self._residuals[slice_.number]

    def encode(self, slice_: Slice, gradients: list[tuple[int, Tensor]], outbox: Tensor) -> int:
        """Compress the pieces that have a gradient, given with their place in the slice. Returns the bytes written."""
        flat = self._staging[: slice_.span].zero_()  # gaps, and pieces without a gradient, are zeros
        places = views(flat, slice_, self._layouts)
        torch._foreach_copy_([places[number] for number, _ in gradients], [gradient for _, gradient in gradients])
        length = self._codec.wire_bytes(slice_.span)
        self._codec.encode(flat, self._residuals[slice_.number], outbox[:length])
        return length
