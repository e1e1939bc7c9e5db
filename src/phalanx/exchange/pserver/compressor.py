"""Compresses gradients for a server: the job's codec, piece by piece, with the residual of what it left out so far.

Each piece has a threshold, a scale or a share of its own: layers differ in size by orders of magnitude, and one number
for the many small layers of a slice would send nothing of most of them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.pserver.job import ServerJob
from phalanx.exchange.pserver.slices import Slice, views


def wire_bytes(codec: Codec, slice_: Slice) -> int:
    """The bytes of a slice's compressed gradient."""
    return sum(codec.wire_bytes(piece.stop - piece.start) for piece in slice_.pieces)


def decode(codec: Codec, slice_: Slice, payload: Tensor, flat: Tensor) -> None:
    """Decode a slice's gradient into `flat`."""
    for sent, row in _parts(codec, slice_, payload, flat):
        codec.decode(sent, row)


def _parts(codec: Codec, slice_: Slice, payload: Tensor, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each piece's bytes in a payload, with its row in the slice."""
    start = 0
    for piece in slice_.pieces:
        numel = piece.stop - piece.start
        stop = start + codec.wire_bytes(numel)
        yield payload[start:stop], flat[piece.offset : piece.offset + numel]
        start = stop


class Compressor:
    """One codec and, for each slice, a residual: what was not sent takes part in the next push."""

    def __init__(self, job: ServerJob) -> None:
        codec = job.codec()
        assert codec is not None
        self._codec, self._layouts = codec, job.layouts
        self._residuals = {each.number: torch.zeros(each.span) for each in job.slices}
        self._staging = torch.zeros(max(each.span for each in job.slices))

    def residual(self, slice_: Slice) -> Tensor:
        """What this worker has not sent of a slice yet; not a copy."""
        return self._residuals[slice_.number]

    def encode(self, slice_: Slice, gradients: list[tuple[int, Tensor]], outbox: Tensor) -> int:
        """Compress the pieces that have a gradient, given with their place in the slice. Returns the bytes written."""
        flat = self._staging[: slice_.span].zero_()  # pieces without a gradient are zeros
        places = views(flat, slice_, self._layouts)
        torch._foreach_copy_([places[number] for number, _ in gradients], [gradient for _, gradient in gradients])
        residual = self.residual(slice_)
        rows = zip(
            _parts(self._codec, slice_, outbox, flat), _parts(self._codec, slice_, outbox, residual), strict=True
        )
        for (payload, gradient), (_, left) in rows:
            self._codec.encode(gradient, left, payload)
        return wire_bytes(self._codec, slice_)
