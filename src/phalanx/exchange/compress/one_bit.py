"""1bit: the sign of each value, and what a positive and a negative value are on average.

A payload is the mean of the values from 0 up and the mean of those below 0 (two float32), then eight signs a byte, the
first in the top bit, 1 for values from 0 up, padded with zeros to a multiple of four bytes. With these two means the
values keep their sum, but for rounding; the residual keeps the rest.
"""

import ctypes

import torch
from torch import Tensor

from phalanx.exchange.compress.codec import CHUNK, BadPayload, Codec, chunks, finite_norm, poison, put
from phalanx.exchange.compress.wire_sizes import ONE_BIT_HEADER as HEADER
from phalanx.exchange.compress.wire_sizes import one_bit_bytes
from phalanx.native.build import load_library


class OneBitCodec(Codec):
    """1bit. `native=False` is for comparisons."""

    def __init__(self, *, native: bool = True) -> None:
        self._library = _load() if native else None

    def wire_bytes(self, numel: int) -> int:
        return one_bit_bytes(numel)

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        if finite_norm(gradient) is None:
            return poison(payload)
        residual.add_(gradient)
        means = _means(residual)
        payload[:HEADER].view(torch.float32).copy_(means)
        packed = payload[HEADER:]
        packed[-4:] = 0  # the padding
        if self._library is not None and residual.is_cpu:
            self._library.one_bit_encode(residual.data_ptr(), *means.tolist(), residual.numel(), packed.data_ptr())
        else:
            for values, place in chunks((residual, CHUNK), (packed, CHUNK // 8)):
                _encode(values, means, place)
        return None

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        means = payload[:HEADER].view(torch.float32)
        if not bool(torch.isfinite(means).all()):
            raise BadPayload(f"1-bit means of {means.tolist()}")
        packed = payload[HEADER:]
        if self._library is not None and out.is_cpu:
            function = self._library.one_bit_decode_add if add else self._library.one_bit_decode
            function(packed.data_ptr(), *means.tolist(), out.numel(), out.data_ptr())
        else:
            for place, part in chunks((packed, CHUNK // 8), (out, CHUNK)):
                put(_decode(place, means, part.numel()), part, add)


def _means(values: Tensor) -> Tensor:
    """Of the values from 0 up, and of those below."""
    sums = [
        torch.stack([part.clamp(min=0).sum(), part.clamp(max=0).sum(), torch.count_nonzero(part >= 0).float()])
        for (part,) in chunks((values, CHUNK))
    ]
    above, below, count = torch.stack(sums).double().sum(0)
    return torch.stack([above / count.clamp(min=1), below / (values.numel() - count).clamp(min=1)]).float()


def _encode(residual: Tensor, means: Tensor, packed: Tensor) -> None:
    """What one_bit.c does, in PyTorch."""
    positive = residual >= 0
    residual.sub_(torch.where(positive, means[0], means[1]))
    signs = torch.zeros(packed.numel() * 8, dtype=torch.uint8, device=packed.device)
    signs[: positive.numel()] = positive
    packed.zero_()
    for position in range(8):
        packed |= signs[position::8] << (7 - position)


def _decode(packed: Tensor, means: Tensor, count: int) -> Tensor:
    masks = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=packed.device)
    positive = ((packed[:, None] & masks) != 0).view(-1)[:count]
    return torch.where(positive, means[0], means[1])


def _load() -> ctypes.CDLL | None:
    library = load_library("one_bit")
    if library is not None:
        address, count, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
        library.one_bit_encode.argtypes = [address, number, number, count, address]
        library.one_bit_decode.argtypes = [address, number, number, count, address]
        library.one_bit_decode_add.argtypes = [address, number, number, count, address]
        for function in (library.one_bit_encode, library.one_bit_decode, library.one_bit_decode_add):
            function.restype = None
    return library
