"""powersgd:R through torch's own hook: each gradient as the product of two thin matrices, summed over ranks.

Torch's hook sends the first two steps whole (DDP fills its buckets anew after the first), and so after a resume. It
also starts with new random matrices then, which a checkpoint does not hold: with powersgd a resumed run is as good as
an uninterrupted one, and not the same in every bit.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future

from phalanx.exchange.compress.hook_state import HookState, Started, started
from phalanx.exchange.compress.residuals import Residuals

WHOLE_STEPS = 2  # the minimum of torch
EPSILON = 1e-8  # added to norms, for a layer whose gradient is zero


class PowerSGDHook(HookState):
    """powersgd:R. Torch averages over ranks, so the result is multiplied by their number."""

    def __init__(self, names: Mapping[nn.Parameter, str], group: dist.ProcessGroup | None, rank: int) -> None:
        super().__init__(names, group)
        self._names = names
        self._torch = PowerSGDState(group, rank, start_powerSGD_iter=WHOLE_STEPS, orthogonalization_epsilon=EPSILON)
        self._params: dict[int, list[Tensor]] = {}  # of each bucket
        self._previous: Future[Tensor] | None = None

    def exchange(self, bucket: GradBucket) -> Future[Tensor]:
        self._previous = super().exchange(bucket)
        return self._previous

    def _start(self, bucket: GradBucket) -> Started:
        # Torch's callbacks start further collectives and wait for them. Two buckets at once would block both threads of
        # gloo for good, or start them in another order on another rank.
        if self._previous is not None:
            self._previous.wait()
        index = bucket.index()
        self._params[index] = bucket.parameters()
        whole = self._torch.iter < WHOLE_STEPS
        if not whole and index not in self._torch.error_dict:
            rows = [self._residuals.take(param) for param in self._params[index]]
            self._torch.error_dict[index] = torch.cat(rows)
        before = self._torch.total_numel_after_compression
        future = started(lambda: powerSGD_hook(self._torch, bucket))
        sent = bucket.buffer().numel() if whole else self._torch.total_numel_after_compression - before
        self._count(4 * sent, 4 * sent)
        return future, lambda mean: self._undo_mean(index, mean)

    def _undo_mean(self, index: int, mean: Tensor) -> Tensor:
        if not bool(torch.isfinite(torch.linalg.vector_norm(mean))):
            # Every rank sees this. If it stayed, each later step would have it again.
            for memory in (self._torch.error_dict, self._torch.p_memory_dict, self._torch.q_memory_dict):
                memory.pop(index, None)
        return mean.mul_(self._world)

    def tensors(self) -> dict[str, Tensor]:
        residuals = Residuals(self._names)
        residuals.load(super().tensors())  # loaded, and not passed to torch yet
        for index, error in self._torch.error_dict.items():
            params = self._params[index]
            for param, row in zip(params, error.split([param.numel() for param in params]), strict=True):
                residuals.flat(param).copy_(row)
        return residuals.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._torch.error_dict.clear()
        super().load(tensors)
