"""The process group of a collective job: joining it, sums over its workers, and leaving it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from phalanx.data.order import Share
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.connectivity import check_reachable
from phalanx.exchange.collective.failures import collective_call
from phalanx.exchange.collective.peer_watch import PeerWatch
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.net.waiting import here


def join_group(rendezvous: StoreRendezvous, device: torch.device, timeout_s: float) -> PeerWatch | None:
    """Form the process group of all workers at the rendezvous: gloo between CPUs, NCCL between GPUs.

    Returns the watch over the other workers, where there are any.
    """
    role, peers = rendezvous.role, rendezvous.peers
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        if peers is not None and backend == "gloo":
            check_reachable(rendezvous.store, role, timeout_s)
            peers.before_connecting()
        if backend == "nccl":
            torch.cuda.set_device(device)
            refuse_shared_gpus([json.loads(text) for text in rendezvous.gather("gpu", json.dumps(_place(device)))])
        store: Any = rendezvous.store.plain  # torch's own entries have no proof
        dist.init_process_group(
            backend,
            store=store,
            rank=role.rank,
            world_size=role.world,
            timeout=timedelta(seconds=timeout_s),
            device_id=device if backend == "nccl" else None,  # connects now, so that what is wrong shows here
        )
        if peers is not None and backend == "nccl":
            peers.aborts_nccl = True
        return peers
    except (RuntimeError, ValueError) as error:
        loss = peers.known() if peers else None
        raise loss or LostWorker(
            f"{role.name} of {role.world} workers could not join the others at {role.master}",
            why=str(error).split("\n")[0],
            remedy="check that all workers were started and nothing blocks the port; see logs/ in the run's folder",
        ) from error


def _place(device: torch.device) -> tuple[str, str, str]:
    """A GPU: its host, its own number, and how this worker calls it."""
    return here(), str(torch.cuda.get_device_properties(device).uuid), str(device)


def refuse_shared_gpus(places: Sequence[Sequence[str]]) -> None:
    """Refuse two workers on one GPU, by the places of all workers: NCCL would only say `invalid usage`."""
    first: dict[tuple[str, str], int] = {}
    for rank, (host, number, name) in enumerate(places):
        other = first.setdefault((host, number), rank)
        if other != rank:
            raise UserError(
                f"trainer-{other} and trainer-{rank} have the same GPU, {name} of {host}",
                why="NCCL, which adds up their gradients, needs one for each",
                remedy="fewer --workers, or --gpus with as many numbers; --update-method pserver can share a GPU",
            )


def leave_group(peers: PeerWatch | None) -> None:
    """Leave the process group. All workers call this when they are done."""
    if peers is not None:
        with suppress(RuntimeError):  # a worker that is lost by now has nothing to leave
            dist.barrier()  # rank 0 may still be saving: the end of another worker must not look like a loss to it
        peers.close()
    dist.destroy_process_group()


class CollectiveGroup:
    """The workers of a collective job, which take each step together."""

    lockstep = True

    def __init__(self, share: Share, device: torch.device, peers: PeerWatch | None) -> None:
        self.share, self._device, self._peers = share, device, peers

    def sum(self, counts: list[float]) -> list[float]:
        tensor = torch.tensor(counts, dtype=torch.float64, device=self._device)
        with collective_call(self._peers):
            dist.all_reduce(tensor)
        totals: list[float] = tensor.tolist()
        self._refuse_aborted()
        return totals

    def _refuse_aborted(self) -> None:
        """NCCL's calls return before they are done. If they were aborted meanwhile, what they leave is no sum."""
        if self._device.type == "cuda" and self._peers is not None:
            torch.cuda.current_stream(self._device).synchronize()
            if (loss := self._peers.lost()) is not None:
                raise loss

    def mean(self, values: Tensor) -> Tensor:
        if self.share.world > 1 and values.numel():
            with collective_call(self._peers):
                dist.all_reduce(values)
            self._refuse_aborted()
            values /= self.share.world
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        values = values.to(self._device)
        rows = [torch.empty_like(values) for _ in range(self.share.world)] if self.share.rank == 0 else None
        with collective_call(self._peers):
            dist.gather(values, rows)
        self._refuse_aborted()
        return rows or []

    def sync_step(self, stop: bool, counts: list[float]) -> tuple[bool, list[float]]:
        if self.share.world == 1:
            return stop, counts
        stops, *totals = self.sum([float(stop), *counts])
        return stops > 0, totals
