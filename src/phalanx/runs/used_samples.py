"""Count from a run's events how often each sample was used: a check that no epoch lost or repeated one."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.runs import events as ev


def samples_used(records: Iterable[Mapping[str, Any]]) -> dict[int, npt.NDArray[np.int64]]:
    """By epoch (from 1): how often each position of its order was used.

    `records` come from `read_events`, so steps that a resume made void do not count. Without lockstep (async, ssp) step
    events do not know the samples of all workers, and nothing is counted.
    """
    counts: dict[int, npt.NDArray[np.int64]] = {}
    num_samples = 0
    for record in records:
        if record["kind"] == ev.Start.kind:
            num_samples = record.get("epoch_samples") or record["train_samples"]
        elif record["kind"] == ev.Step.kind:
            for epoch, first, end in record["used"]:
                counts.setdefault(epoch, np.zeros(num_samples, dtype=np.int64))[first:end] += 1
    return counts
