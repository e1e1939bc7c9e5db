"""A slice's gradient as a message from where backward has put it: without copying it together first."""

from collections.abc import Mapping

from torch import Tensor

from phalanx.exchange.pserver.slices import Slice, in_memory_order
from phalanx.net.lane_cipher import Pieces
from phalanx.net.shared_memory import raw

_ITEM = 4  # bytes of a float32


def in_place(slice_: Slice, gradients: Mapping[int, Tensor]) -> Pieces:
    """The slice's bytes. `gradients` are those of its pieces, by place; what has none is zeros."""
    buffers: list[memoryview] = []
    end = 0
    for number, piece in enumerate(slice_.pieces):
        if number in gradients:
            _fill(buffers, piece.offset - end)
            buffers.append(raw(in_memory_order(gradients[number].detach())))
            end = piece.offset + piece.stop - piece.start
    _fill(buffers, slice_.span - end)
    return Pieces(buffers)


def _fill(buffers: list[memoryview], num_values: int) -> None:
    if num_values:
        buffers.append(memoryview(bytes(_ITEM * num_values)))
