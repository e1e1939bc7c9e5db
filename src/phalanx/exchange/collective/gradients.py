"""Gradients of all workers, summed by DistributedDataParallel while backward runs."""

import inspect
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phalanx.exchange.base import Applied
from phalanx.exchange.collective.buckets import BUCKET_MIB
from phalanx.exchange.collective.failures import collective_call, lost_if_distributed, lost_worker, raise_if_lost
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.exchange.compress.hooks import register
from phalanx.exchange.compress.spec import CompressionSpec
from phalanx.exchange.local import clip_and_update
from phalanx.machine.skip_dynamo import ddp_without_dynamo
from phalanx.optim.update import Update


class CollectiveGradients:
    """DDP with our own hook: gradients arrive weighted by sample share, so they are summed."""

    def __init__(
        self,
        model: nn.Module,
        update: Update,
        clip_norm: float | None,
        compression: CompressionSpec,
        peers: PeerWatch | None,
    ) -> None:
        self._peers = peers
        self._model, self._update, self._clip_norm = model, update, clip_norm
        self._inner = _Inner(model)
        with collective_call(peers):  # DDP compares and copies the workers' parameters
            self._ddp = distributed(self._inner)
        names = {param: name for name, param in model.named_parameters()}
        self.hook = register(self._ddp, compression, names)
        self._waited_s = 0.0

    def forward(self, images: Tensor) -> Tensor:
        self._inner.running = False
        try:
            output: Tensor = self._ddp(images)
        except RuntimeError as error:
            if self._inner.running:
                raise
            raise_if_lost(error, self._peers)  # DDP itself agrees with the other workers once on its buckets
            raise
        return output

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        return self._exchanging() if last else self._adding()

    @contextmanager
    def _adding(self) -> Iterator[None]:
        """A micro-batch that is not the step's last: gradients stay here, but synchronised batch norm does not."""
        with lost_if_distributed(self._peers), self._ddp.no_sync():
            yield

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """The last backward of a step. What it spends after its last gradient is ready, it spends waiting."""
        with lost_if_distributed(self._peers):
            yield
        if self.hook.failure is not None:
            raise lost_worker(self.hook.failure, self._peers) from self.hook.failure
        self._waited_s = time.perf_counter() - self.hook.last_ready if dist.get_world_size() > 1 else 0.0

    def skip_step(self, images: Tensor) -> None:
        """Sum zeros with the others: the gradients of 0 × an output that leaves batch norm untouched."""
        training = self._model.training
        self._model.eval()
        with self._exchanging():
            (self.forward(images.new_zeros(1, *images.shape[1:])).sum() * 0.0).backward()
        self._model.train(training)

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        lr, norm = clip_and_update(self._model, self._update, self._clip_norm, step)
        sent, received = self.hook.take_bytes()
        return Applied(
            lr,
            norm,
            exchange_s=self._waited_s,
            update_s=time.perf_counter() - begin,
            inside_backward_s=self._waited_s,
            bytes_sent=sent,
            bytes_received=received,
        )

    def discard(self) -> None:
        self._update.clear()


class _Inner(nn.Module):
    """The model inside of DDP, which says whether an error of DDP's forward is the model's own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.running = model, False

    def forward(self, images: Tensor) -> Tensor:
        self.running = True
        output: Tensor = self.model(images)
        self.running = False
        return output


def distributed(model: nn.Module) -> DistributedDataParallel:
    """DDP whose batch-norm statistics stay each worker's own between evaluations: `sync_buffers` averages them."""
    known = inspect.signature(DistributedDataParallel).parameters
    shared: dict[str, Any] = {"bucket_cap_mb": BUCKET_MIB, "gradient_as_bucket_view": True}
    with ddp_without_dynamo():
        if "forward_sync_buffers" in known:  # the newer name
            return DistributedDataParallel(model, forward_sync_buffers=False, **shared)
        return DistributedDataParallel(model, broadcast_buffers=False, **shared)
