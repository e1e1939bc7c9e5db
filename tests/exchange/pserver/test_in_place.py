"""Gradients that are sent from where they are: the same bytes as if they were copied together first."""

import torch

from phalanx.exchange.pserver.in_place import in_place
from phalanx.exchange.pserver.slices import Layout, Slice, cut, in_memory_order, part_of, views


def test_a_slice_in_place_has_the_bytes_of_a_copy() -> None:
    torch.manual_seed(0)
    params = {
        "conv": torch.randn(6, 5, 3, 3).to(memory_format=torch.channels_last),
        "bias": torch.randn(7),  # gaps behind it
        "none": torch.randn(33),
        "linear": torch.randn(100, 90),  # in several slices
    }
    layouts = {name: Layout.of(param) for name, param in params.items()}
    slices = cut({name: param.numel() for name, param in params.items()}, 1, target_bytes=16 << 10)
    assert len(slices) > 1
    for each in slices:
        gradients = {
            number: part_of(params[piece.name], piece)
            for number, piece in enumerate(each.pieces)
            if piece.name != "none"
        }
        assert bytes(in_place(each, gradients)) == _copied(each, layouts, gradients)


def _copied(slice_: Slice, layouts: dict[str, Layout], gradients: dict[int, torch.Tensor]) -> bytes:
    flat = torch.zeros(slice_.span)
    places = views(flat, slice_, layouts)
    for number, gradient in gradients.items():
        in_memory_order(places[number]).copy_(in_memory_order(gradient))
    return flat.numpy().tobytes()
