"""none, fp16 and bf16: every value is sent, with all or fewer of its bits."""

import torch
from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.compress.codec import CHUNK, Codec, chunks, finite_norm, poison, put


class PlainCodec(Codec):
    """none: float32 as it is, NaN and infinity included."""

    keeps_residual = False

    def wire_bytes(self, numel: int) -> int:
        return 4 * numel

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        payload.copy_(gradient.view(torch.uint8))

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        put(payload.view(torch.float32), out, add)


class CastCodec(Codec):
    """fp16 or bf16: values rounded to 16 bits; the residual keeps the rounding error.

    After a refused overflow the residual is spoilt: the run is over.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def wire_bytes(self, numel: int) -> int:
        return 2 * numel

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        if finite_norm(gradient) is None:
            return poison(payload)
        residual.add_(gradient)
        self._refuse_overflow(residual)
        sent = payload.view(self.dtype)
        sent.copy_(residual)
        for left, taken in chunks((residual, CHUNK), (sent, CHUNK)):
            left.sub_(taken.float())  # PyTorch is slow at mixed types
        return None

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        for values, part in chunks((payload.view(self.dtype), CHUNK), (out, CHUNK)):
            put(values.float(), part, add)

    def _refuse_overflow(self, wanted: Tensor) -> None:
        largest = torch.finfo(self.dtype).max
        low, high = (float(bound) for bound in torch.aminmax(wanted))
        if max(-low, high) > largest:
            raise overflow(low if -low > high else high, self.dtype)


def overflow(value: float, dtype: torch.dtype) -> UserError:
    """The refusal of a value that a 16-bit type cannot hold."""
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    return UserError(
        f"a gradient value of {value:.6g} does not fit into {name}",
        why=f"the largest {name} value is {torch.finfo(dtype).max:.6g}; sent as infinity it would spoil the weights",
        remedy="--compress bf16 has the range of float32; or set optim.clip_norm, or lower optim.lr",
    )
