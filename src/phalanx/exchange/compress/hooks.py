"""DDP communication hooks: each bucket of gradients is compressed, exchanged and added up while backward goes on.

Gradients arrive already weighted by samples, so every hook leaves the sum over ranks in the bucket and none divides.

A bucket's parameters are compressed one by one. So the result does not depend on how DDP fills its buckets (it fills
them anew after the first step), thresholds and shares follow each layer, and residuals are kept by parameter name.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from phalanx.errors import UserError
from phalanx.exchange.compress.cast import CastCodec
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.hook_state import HookState, Started
from phalanx.exchange.compress.powersgd import PowerSGDHook
from phalanx.exchange.compress.spec import CompressionSpec


class PlainHook(HookState):
    """none: the bucket itself is summed."""

    def _start(self, bucket: GradBucket) -> Started:
        return self._sum(bucket.buffer()), lambda summed: summed[0]


class CastHook(HookState):
    """fp16, bf16: sent and summed in 16 bits; the residual keeps what this rank rounded away."""

    def __init__(self, names: Mapping[nn.Parameter, str], group: dist.ProcessGroup | None, dtype: torch.dtype) -> None:
        super().__init__(names, group)
        self._codec = CastCodec(dtype, num_summed=self._world)

    def _start(self, bucket: GradBucket) -> Started:
        row, _ = self._encode(self._codec, bucket)
        buffer: Tensor = bucket.buffer()

        def decode(summed: list[Tensor]) -> Tensor:
            self._codec.decode(row, buffer)
            return buffer

        return self._sum(row.view(self._codec.dtype)), decode


class GatherHook(HookState):
    """2bit, 1bit, topk: every rank gets every payload and adds them in rank order, so all get the same bits."""

    def __init__(self, names: Mapping[nn.Parameter, str], group: dist.ProcessGroup | None, codec: Codec) -> None:
        super().__init__(names, group)
        self._codec = codec

    def _start(self, bucket: GradBucket) -> Started:
        row, sizes = self._encode(self._codec, bucket)
        rows = row.new_empty(self._world, row.numel())
        buffer: Tensor = bucket.buffer()
        gradients = bucket.gradients()

        def add_up(gathered: list[Tensor]) -> Tensor:
            for rank in range(self._world):
                decode = self._codec.decode_add if rank else self._codec.decode
                for payload, gradient in zip(rows[rank].split(sizes), gradients, strict=True):
                    decode(payload, gradient.view(-1))
            return buffer

        return self._gather(rows, row), add_up


def register(
    ddp: DistributedDataParallel,
    spec: CompressionSpec,
    names: Mapping[nn.Parameter, str],
    process_group: dist.ProcessGroup | None = None,
) -> HookState:
    """Let DDP exchange gradients by `spec`. `names` are those under which a checkpoint keeps residuals."""
    state = _make_state(spec, names, process_group)
    if spec.kind != "none" and any(param.dtype != torch.float32 for param in names):
        raise UserError(
            f"compression {spec} needs float32 parameters",
            why="this model has others, whose gradients are shorter already",
            remedy="--compress none",
        )
    ddp.register_comm_hook(state, _hook)
    return state


def _make_state(spec: CompressionSpec, names: Mapping[nn.Parameter, str], group: dist.ProcessGroup | None) -> HookState:
    match spec.kind:
        case "none":
            return PlainHook(names, group)
        case "fp16":
            return CastHook(names, group, torch.float16)
        case "bf16":
            return CastHook(names, group, torch.bfloat16)
        case "powersgd":
            assert spec.rank is not None
            return PowerSGDHook(names, group, spec.rank)
        case _:
            return GatherHook(names, group, make_codec(spec))


def _hook(state: HookState, bucket: GradBucket) -> Future[Tensor]:
    return state.exchange(bucket)
