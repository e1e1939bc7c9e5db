"""A failed collective call means that another worker is lost. The call decides this, not the words of its error.

An error of the user's model or loss is none of a collective, whatever it says, and passes through here unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.peer_watch import PeerWatch


def lost_worker(error: BaseException, peers: PeerWatch | None) -> LostWorker:
    """The loss that made a collective call fail; it names the worker where the watch knows it."""
    loss = peers.known() if peers is not None else None
    return loss or LostWorker(
        "another worker of this job is gone or silent",
        why=str(error).split("\n")[0][:300],
        remedy="see logs/ in the run's folder for the worker that failed first, then go on with --resume",
    )


@contextmanager
def collective_call(peers: PeerWatch | None) -> Iterator[None]:
    """Around a call of torch.distributed, and nothing else: every RuntimeError in here is a failed collective."""
    try:
        yield
    except RuntimeError as error:  # gloo raises plain ones; torch's DistError is one too
        raise lost_worker(error, peers) from error


@contextmanager
def lost_if_distributed(peers: PeerWatch | None) -> Iterator[None]:
    """Around code that is not all ours: only errors of torch.distributed's own types are failed collectives."""
    try:
        yield
    except dist.DistError as error:
        raise lost_worker(error, peers) from error


def raise_if_lost(error: RuntimeError, peers: PeerWatch | None) -> None:
    """For an error that may or may not be of a collective: raise LostWorker if it is one, or if a worker is lost."""
    loss = peers.known() if peers is not None else None
    if loss is not None or isinstance(error, dist.DistError):
        raise loss or lost_worker(error, None) from error
