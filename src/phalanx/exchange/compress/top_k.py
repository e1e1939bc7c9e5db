"""topk: the largest magnitudes with their places; the rest stays in the residual until it is large enough.

Of n values k = max(1, round(R n)) are sent; among equal magnitudes the first. A payload is k indices (uint32,
ascending), then k values (float32), and holds the sent values exactly.
"""

import ctypes

import numpy as np
import torch
from torch import Tensor

from phalanx.exchange.compress.codec import BadPayload, Codec, finite_norm, poison
from phalanx.exchange.compress.wire_sizes import top_k_bytes, top_k_count
from phalanx.native.build import load_library


class TopKCodec(Codec):
    """topk:R (`ratio`). `native=False` is for comparisons."""

    def __init__(self, ratio: float, *, native: bool = True) -> None:
        self._ratio = ratio
        self._library = _load() if native else None

    def num_sent(self, numel: int) -> int:
        """How many of `numel` values a payload holds."""
        return top_k_count(self._ratio, numel)

    def wire_bytes(self, numel: int) -> int:
        return top_k_bytes(self._ratio, numel)

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        if finite_norm(gradient) is None:
            return poison(payload)
        residual.add_(gradient)
        k = self.num_sent(gradient.numel())
        if self._library is not None and gradient.is_cpu:
            places = payload.data_ptr(), payload[4 * k :].data_ptr()
            self._library.top_k_take(residual.data_ptr(), residual.numel(), k, *places)
        else:
            indices = _largest(residual, k)
            payload[: 4 * k].view(torch.int32).copy_(indices)
            payload[4 * k :].view(torch.float32).copy_(residual[indices])
            residual[indices] = 0.0
        return None

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        k = self.num_sent(out.numel())
        indices = payload[: 4 * k].view(torch.int32).long() & 0xFFFFFFFF
        if int(indices.max()) >= out.numel():
            raise BadPayload(f"index {int(indices.max())} among {out.numel()} values")
        if not add:
            out.zero_()
        out.index_add_(0, indices, payload[4 * k :].view(torch.float32))


def _largest(values: Tensor, k: int) -> Tensor:
    """Indices of the k largest magnitudes, ascending; what top_k.c does, in NumPy or PyTorch."""
    magnitudes = values.abs()
    if magnitudes.is_cpu:  # eight times as fast as torch.topk
        place = values.numel() - k
        kth = float(np.partition(magnitudes.numpy(), place)[place])
    else:
        kth = float(magnitudes.topk(k, sorted=False).values.min())
    above = (magnitudes > kth).nonzero().view(-1)
    ties = (magnitudes == kth).nonzero().view(-1)[: k - above.numel()]
    return torch.cat([above, ties]).sort().values


def _load() -> ctypes.CDLL | None:
    library = load_library("top_k")
    if library is not None:
        address, count = ctypes.c_void_p, ctypes.c_size_t
        library.top_k_take.argtypes = [address, count, count, address, address]
        library.top_k_take.restype = None
    return library
