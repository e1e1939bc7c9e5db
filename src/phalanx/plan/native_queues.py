"""Calls `native/server_queues.c`, which is `plan/server_queues.py` in C, where it can be compiled."""

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

from phalanx.native.build import find_library
from phalanx.plan.job import PREFETCH
from phalanx.plan.server_queues import Moments, ServerQueues

_COUNTS = ("workers", "servers", "hosts", "messages", "steps", "mode", "bound", "prefetch")
_SECONDS = ("nic", "latency_s", "batch_s", "before_s", "backward_s")
_PLACES = ("home", "worker_host", "server_host")
_WORK = ("ready_s", "encoded_s", "push_bytes", "pull_bytes", "take_s", "update_s", "reply_s")
_MOMENTS = ("begun", "done", "end", "late")


class _Inputs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in _COUNTS),
        *((name, ctypes.c_double) for name in _SECONDS),
        *((name, ctypes.c_void_p) for name in (*_PLACES, *_WORK, "factors", *_MOMENTS)),
    ]


def native_moments(queues: ServerQueues) -> Moments | None:
    """What `queues.run()` gives; None where C code cannot be compiled."""
    library = find_library("server_queues", "Python").handle
    if library is None:
        return None
    job, work, pace = queues.job, queues.work, queues.pace
    mode = ("sync", "async", "ssp").index(job.mode.partition(":")[0])
    counts = (job.workers, job.servers, len(queues.out), len(work.home), queues.steps, mode)
    seconds = (job.network.nic, job.network.nic_latency_s, pace.batch_s, job.before_backward_s, job.times.backward_s)
    places = [array("q", each) for each in (work.home, queues.worker_host, queues.server_host)]
    numbers: list[Sequence[float]] = [*(getattr(work, name) for name in _WORK), pace.factors]
    arrays: list[array[Any]] = [*places, *(array("d", each) for each in numbers)]
    found = Moments.of(queues.steps * job.workers)
    arrays += [getattr(found, name) for name in _MOMENTS]  # `arrays` keeps all of them alive during the call
    addresses = [each.buffer_info()[0] for each in arrays]
    inputs = _Inputs(*counts, job.staleness or 0, PREFETCH, *seconds, *addresses)
    if library.server_queues(ctypes.byref(inputs)):
        raise MemoryError("no memory for server_queues")
    return found
