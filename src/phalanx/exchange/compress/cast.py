"""none, fp16 and bf16: every value is sent, with all or fewer of its bits."""

import torch
from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.compress.codec import CHUNK, Codec, chunks, finite_norm, poison, put
from phalanx.exchange.compress.wire_sizes import half_bytes, plain_bytes


class PlainCodec(Codec):
    """none: float32 as it is, NaN and infinity included."""

    keeps_residual = False

    def wire_bytes(self, numel: int) -> int:
        return plain_bytes(numel)

    def _write(self, gradient: Tensor, residual: Tensor, payload: Tensor) -> None:
        payload.copy_(gradient.view(torch.uint8))

    def _read(self, payload: Tensor, out: Tensor, add: bool) -> None:
        put(payload.view(torch.float32), out, add)


class CastCodec(Codec):
    """fp16 or bf16: values rounded to 16 bits; the residual keeps the rounding error.

    `num_summed` payloads may be added up in 16 bits, as an all-reduce does, without overflow. After a refused value the
    residual is spoilt: the run is over.
    """

    def __init__(self, dtype: torch.dtype, num_summed: int = 1) -> None:
        self.dtype = dtype
        self._num_summed = num_summed

    def wire_bytes(self, numel: int) -> int:
        return half_bytes(numel)

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
        value = low if -low > high else high
        if abs(value) * self._num_summed <= largest:
            return
        name = {torch.float16: "fp16", torch.bfloat16: "bf16"}[self.dtype]
        workers = f", summed over {self._num_summed} workers," if self._num_summed > 1 else ""
        raise UserError(
            f"a gradient value of {value:.6g}{workers} does not fit into {name}",
            why=f"the largest {name} value is {largest:.6g}; sent as infinity it would spoil the weights",
            remedy="--compress bf16 has the range of float32; or lower optim.lr, or lengthen schedule.warmup",
        )
