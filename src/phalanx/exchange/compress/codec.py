"""The interface of compression: a slice of a gradient in, bytes out; bytes in, a slice out.

Error feedback: what a payload leaves out stays in the residual and takes part in the next encoding. So what was decoded
so far plus the residual is the sum of all gradients so far, but for the rounding of float32 sums.

A gradient that holds NaN or infinity (or whose norm overflows float32) is not compressed: its payload is 0xFF
throughout, decodes to NaN everywhere and leaves the residual as it was. Every receiver sees the overflow, as without
compression, may skip the step, and nothing of it comes back later.

Numbers in a payload are little-endian.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

# PyTorch's intermediate results of this many values stay in a core's cache and need no fresh pages: several times the
# speed of working on a whole slice at once.
CHUNK = 1 << 16


class BadPayload(Exception):
    """Bytes that no encoder of ours has written; a receiver refuses the message and goes on."""


class Codec(ABC):
    """One way of compressing. It holds settings only: the residual belongs to the caller, one for each slice."""

    keeps_residual = True  # whether `encode` uses a residual

    @abstractmethod
    def wire_bytes(self, numel: int) -> int:
        """The size of the payload of `numel` values; it does not depend on them."""

    def encode(self, gradient: Tensor, residual: Tensor | None = None, payload: Tensor | None = None) -> Tensor:
        """Compress a flat float32 gradient, and update the residual in place.

        Without a residual what is left out is lost. The bytes go to `payload` (uint8, `wire_bytes` long), or to a new
        tensor, and are returned.
        """
        _check_flat(gradient)
        if payload is None:
            payload = torch.empty(self.wire_bytes(gradient.numel()), dtype=torch.uint8, device=gradient.device)
        self._check_size(payload, gradient)
        if gradient.numel() == 0:
            return payload.zero_()
        if residual is None:
            residual = torch.zeros_like(gradient) if self.keeps_residual else gradient  # not used then
        _check_flat(residual)
        if residual.numel() != gradient.numel():
            raise ValueError(f"a residual of {residual.numel()} values for a gradient of {gradient.numel()}")
        self._write(gradient, residual, payload)
        return payload

    def decode(self, payload: Tensor, out: Tensor) -> None:
        """Overwrite `out`, flat float32, with what a payload holds; it begins at a multiple of 4 in its storage."""
        self._decode(payload, out, add=False)

    def decode_add(self, payload: Tensor, out: Tensor) -> None:
        """Add what a payload holds to `out`."""
        self._decode(payload, out, add=True)

    def _decode(self, payload: Tensor, out: Tensor, add: bool) -> None:
        _check_flat(out)
        self._check_size(payload, out)
        if out.numel() == 0:
            return
        if self.keeps_residual and is_poisoned(payload):
            out.fill_(math.nan)
        else:
            self._read(payload, out, add)

    def _check_size(self, payload: Tensor, values: Tensor) -> None:
        expected = self.wire_bytes(values.numel())
        if (
            payload.dtype != torch.uint8
            or payload.dim() != 1
            or not payload.is_contiguous()
            or payload.numel() != expected
        ):
            raise BadPayload(f"{payload.numel()} bytes where {values.numel()} values take {expected}")

    @abstractmethod
    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        """Fill the payload of at least one value, and update the residual."""

    @abstractmethod
    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        """Overwrite or add to `out`; the payload has the right size and is not poisoned."""


def finite_norm(gradient: Tensor) -> float | None:
    """The gradient's norm; None if it is not finite."""
    norm = float(torch.linalg.vector_norm(gradient))
    return norm if math.isfinite(norm) else None


def poison(payload: Tensor) -> None:
    """Make a payload say that its gradient was not finite."""
    payload.fill_(0xFF)


def is_poisoned(payload: Tensor) -> bool:
    """No codec writes four such bytes first: as a float they are NaN, as an index they are out of range."""
    return bool((payload[:4] == 0xFF).all())


def chunks(*tensors: tuple[Tensor, int]) -> Iterator[tuple[Tensor, ...]]:
    """Walk along flat tensors together, each with its own stride; on an accelerator in one piece."""
    return zip(*(tensor.split(size) if tensor.is_cpu else (tensor,) for tensor, size in tensors), strict=True)


def put(values: Tensor, out: Tensor, add: bool) -> None:
    """Overwrite `out`, or add to it."""
    if add:
        out.add_(values)
    else:
        out.copy_(values)


def _check_flat(values: Tensor) -> None:
    if values.dtype != torch.float32 or values.dim() != 1 or not values.is_contiguous():
        raise ValueError(f"expected flat contiguous float32 values, not {values.dtype} of shape {tuple(values.shape)}")
