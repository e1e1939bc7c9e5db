"""collective: every worker keeps the parameters; gradients are summed over all of them while backward runs."""

import inspect
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phalanx.config.role import Role
from phalanx.custom.blame import raised_by_user
from phalanx.data.order import Share
from phalanx.exchange.base import Applied, LostWorker, Rescued
from phalanx.exchange.compress.hooks import register
from phalanx.exchange.compress.residuals import residuals_of
from phalanx.exchange.compress.spec import CompressionSpec
from phalanx.exchange.connectivity import check_reachable
from phalanx.exchange.local import update_here
from phalanx.exchange.peer_watch import PeerWatch
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.machine.skip_dynamo import ddp_without_dynamo
from phalanx.optim.update import Update


def join_group(rendezvous: StoreRendezvous, device: torch.device, timeout_s: float) -> PeerWatch | None:
    """Form the group of trainers that have met: gloo between CPUs, NCCL between GPUs.

    Returns who watches the others, where there are any.
    """
    role, peers = rendezvous.role, rendezvous.peers
    store: Any = rendezvous.store
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        if peers is not None and backend == "gloo":
            check_reachable(store, role, timeout_s)
            peers.before_connecting()
        dist.init_process_group(
            backend, store=store, rank=role.rank, world_size=role.world, timeout=timedelta(seconds=timeout_s)
        )
        return peers
    except (RuntimeError, ValueError) as error:
        loss = peers.known() if peers else None
        raise loss or LostWorker(
            f"trainer {role.rank} of {role.world} did not meet the others at {role.master}",
            why=str(error).split("\n")[0],
            remedy="check that all workers were started and nothing blocks the port; see logs/ in the run's folder",
        ) from error


def leave_group(peers: PeerWatch | None) -> None:
    """All trainers call this when they are done."""
    if peers is not None:
        with suppress(RuntimeError):  # who is lost by now has nothing to leave
            dist.barrier()  # the first trainer may still be saving: nobody's end is to look like a loss to it
        peers.close()
    dist.destroy_process_group()


class CollectiveExchange:
    """DistributedDataParallel with our own hook: gradients arrive weighted by sample share, so they are summed."""

    lockstep = True
    joined_step: int | None = None

    def __init__(
        self,
        model: nn.Module,
        update: Update,
        role: Role,
        *,
        accumulate: int,
        clip_norm: float | None,
        compression: CompressionSpec,
        micro_batches: int | None = None,
        syncs_inside: bool = False,
        peers: PeerWatch | None = None,
    ) -> None:
        self._peers = peers
        self.syncs_inside = syncs_inside
        self.share = Share(role.rank, role.world, accumulate, micro_batches)
        self._model, self._update, self._clip_norm = model, update, clip_norm
        with self._peers_may_be_lost():
            self._ddp = distributed(model)
        names = {param: name for name, param in model.named_parameters()}
        self._hook = register(self._ddp, compression, names)
        self._waited_s = 0.0
        self._owed: dict[str, Tensor] = {}  # residuals at the last step boundary, where somebody marks it

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self._ddp(images)
        return answer

    def accumulate(self, last: bool) -> AbstractContextManager[Any]:
        return self._exchanging() if last else self._adding()

    @contextmanager
    def _adding(self) -> Iterator[None]:
        """A micro-batch that is not the step's last: gradients stay here, but batch norm may meet the others."""
        with self._peers_may_be_lost(), self._ddp.no_sync():
            yield

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """The last backward of a step. What it spends after its last gradient is ready, it spends waiting."""
        with self._peers_may_be_lost():
            yield
        self._waited_s = time.perf_counter() - self._hook.last_ready if self.share.world > 1 else 0.0

    def skip_step(self, images: Tensor) -> None:
        """Sum zeros with the others: the gradients of 0 × an answer that leaves batch norm untouched."""
        training = self._model.training
        self._model.eval()
        with self._exchanging():
            (self._ddp(images.new_zeros(1, *images.shape[1:])).sum() * 0.0).backward()
        self._model.train(training)

    def apply(self, step: int) -> Applied:
        begin = time.perf_counter()
        lr, norm = update_here(self._model, self._update, self._clip_norm, step)
        sent, received = self._hook.take_bytes()
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

    def sum(self, counts: list[float]) -> list[float]:
        tensor = torch.tensor(counts, dtype=torch.float64, device=self._device())
        with self._peers_may_be_lost():
            dist.all_reduce(tensor)
        totals: list[float] = tensor.tolist()
        return totals

    def sync_step(self, wish: bool, counts: list[float]) -> tuple[bool, list[float]]:
        if self.share.world == 1:
            return wish, counts
        wishes, *totals = self.sum([float(wish), *counts])
        return wishes > 0, totals

    def leave(self) -> None:
        pass  # all stop after the same step

    def sync_buffers(self) -> None:
        averaged = [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]
        if self.share.world == 1 or not averaged:
            return
        flat = torch.cat([buffer.flatten() for buffer in averaged])
        with self._peers_may_be_lost():
            dist.all_reduce(flat)
        flat /= self.share.world
        for buffer, mean in zip(averaged, flat.split([buffer.numel() for buffer in averaged]), strict=True):
            buffer.copy_(mean.view_as(buffer))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._update.state()

    def load(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        self._update.load(tensors, scalars)

    def residuals(self) -> dict[str, Tensor]:
        mine = self._hook.tensors()
        if not mine:
            return {}
        flat = torch.cat([tensor.flatten() for tensor in mine.values()])
        rows = [torch.empty_like(flat) for _ in range(self.share.world)] if self.share.rank == 0 else None
        with self._peers_may_be_lost():
            dist.gather(flat, rows)
        return {
            f"{rank}/{name}": part.view(mine[name].shape)
            for rank, row in enumerate(rows or [])
            for name, part in zip(mine, row.split([tensor.numel() for tensor in mine.values()]), strict=True)
        }

    def load_residuals(self, tensors: Mapping[str, Tensor]) -> None:
        self._hook.load(residuals_of(tensors, self.share))

    def mark(self) -> None:
        self._owed = {name: tensor.clone() for name, tensor in self._hook.tensors().items()}

    def roll_back(self) -> None:
        self._update.clear()
        self._hook.load(self._owed)

    def rescue(self, step: int) -> Rescued:
        residuals = {f"{self.share.rank}/{name}": tensor for name, tensor in self._hook.tensors().items()}
        return Rescued(*self._update.state(), residuals)

    def close(self) -> None:
        leave_group(self._peers)

    @contextmanager
    def _peers_may_be_lost(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, dist.DistBackendError) as error:
            text = str(error)
            if raised_by_user(error) or not any(
                sign in text.lower() for sign in ("connection", "gloo", "timed out", "nccl", "peer", "socket")
            ):
                raise
            raise (self._peers.known() if self._peers else None) or LostWorker(
                "another worker of this job is gone or silent",
                why=text.split("\n")[0][:300],
                remedy="see logs/ in the run's folder for who failed first, then go on with --resume",
            ) from error

    def _device(self) -> torch.device:
        return next(self._model.parameters()).device


def distributed(model: nn.Module) -> DistributedDataParallel:
    """DDP whose batch-norm statistics stay each worker's own between evaluations: `settle` averages them."""
    known = inspect.signature(DistributedDataParallel).parameters
    with ddp_without_dynamo():
        if "forward_sync_buffers" in known:  # the newer name
            return DistributedDataParallel(model, forward_sync_buffers=False, gradient_as_bucket_view=True)
        return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)
