"""2bit: each value as -threshold, 0 or +threshold, exactly as MXNet defines it.

    r += g;   r >= t: code 11, r -= t;   r <= -t: code 10, r += t;   else code 00

A payload is the threshold (float32), then four codes a byte, the first in the top two bits, padded with zeros to a
multiple of four bytes: what follows the threshold is MXNet's compressed array, byte for byte.

Both steps round to float32, r + g and r -+ t, each by at most half a unit in the last place of its result; that is all
by which decoded + residual may differ from the sum of gradients. Where gradients and threshold are multiples of one
power of two (and sums stay below 2^24 of it) nothing rounds and they are equal.
"""

import ctypes
import math
import struct

import torch
from torch import Tensor

from phalanx.exchange.compress.codec import CHUNK, BadPayload, Codec, chunks, finite_norm, poison, put
from phalanx.exchange.compress.wire_sizes import TWO_BIT_HEADER as HEADER
from phalanx.exchange.compress.wire_sizes import two_bit_bytes
from phalanx.native.build import load_library


class TwoBitCodec(Codec):
    """2bit:T (`threshold`) or 2bit:rms:F (`rms_factor`, of the gradient at hand). `native=False` is for comparisons."""

    def __init__(self, threshold: float | None = None, rms_factor: float | None = None, *, native: bool = True) -> None:
        if (threshold is None) == (rms_factor is None):
            raise ValueError("2bit has a threshold or a factor of the RMS, and not both")
        self._threshold, self._rms_factor = threshold, rms_factor
        self._library = _load() if native else None

    def wire_bytes(self, numel: int) -> int:
        return two_bit_bytes(numel)

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        norm = finite_norm(gradient)
        if norm is None:
            return poison(payload)
        threshold = self._threshold_for(norm, gradient.numel())
        payload[:HEADER].view(torch.float32).fill_(threshold)
        packed = payload[HEADER:]
        if threshold == 0:  # only an RMS can be 0: the gradient is 0, so nothing is sent
            residual.add_(gradient)
            packed.zero_()
        elif self._library is not None and gradient.is_cpu:
            packed[-4:] = 0  # the padding
            addresses = gradient.data_ptr(), residual.data_ptr()
            self._library.two_bit_encode(*addresses, threshold, gradient.numel(), packed.data_ptr())
        else:
            for values, left, place in chunks((gradient, CHUNK), (residual, CHUNK), (packed, CHUNK // 4)):
                _encode(values, left, threshold, place)
        return None

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        threshold = float(payload[:HEADER].view(torch.float32))
        if not (math.isfinite(threshold) and threshold >= 0):
            raise BadPayload(f"a 2-bit threshold of {threshold}")
        packed = payload[HEADER:]
        if self._library is not None and out.is_cpu:
            function = self._library.two_bit_decode_add if add else self._library.two_bit_decode
            function(packed.data_ptr(), threshold, out.numel(), out.data_ptr())
        else:
            for place, part in chunks((packed, CHUNK // 4), (out, CHUNK)):
                put(_decode(place, threshold, part.numel()), part, add)

    def _threshold_for(self, norm: float, numel: int) -> float:
        if self._threshold is not None:
            wanted = self._threshold
        else:
            assert self._rms_factor is not None
            wanted = self._rms_factor * norm / math.sqrt(numel)
        return _as_float32(min(wanted, torch.finfo(torch.float32).max))


def _as_float32(value: float) -> float:
    """Rounded to what is sent, so that sender and receiver use the same number."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def _encode(gradient: Tensor, residual: Tensor, threshold: float, packed: Tensor) -> None:
    """What two_bit.c does, in PyTorch."""
    residual.add_(gradient)
    up, down = residual >= threshold, residual <= -threshold
    residual.sub_(torch.where(up, threshold, torch.where(down, -threshold, 0.0)))
    codes = torch.zeros(packed.numel() * 4, dtype=torch.uint8, device=packed.device)
    codes[: residual.numel()] = up.to(torch.uint8) * 3 + down.to(torch.uint8) * 2
    packed.copy_(codes[0::4] << 6 | codes[1::4] << 4 | codes[2::4] << 2 | codes[3::4])


def _decode(packed: Tensor, threshold: float, count: int) -> Tensor:
    values = torch.tensor([0.0, 0.0, -threshold, threshold], device=packed.device)
    shifts = torch.tensor([6, 4, 2, 0], dtype=torch.uint8, device=packed.device)
    codes = (packed[:, None] >> shifts) & 3
    return values[codes.view(-1)[:count].int()]


def _load() -> ctypes.CDLL | None:
    library = load_library("two_bit")
    if library is not None:
        address, count, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
        library.two_bit_encode.argtypes = [address, address, number, count, address]
        library.two_bit_decode.argtypes = [address, number, count, address]
        library.two_bit_decode_add.argtypes = [address, number, count, address]
        for function in (library.two_bit_encode, library.two_bit_decode, library.two_bit_decode_add):
            function.restype = None
    return library
