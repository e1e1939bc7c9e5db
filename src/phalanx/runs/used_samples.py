"""Which samples a run has used, from its events: the proof that no epoch lost or repeated one."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.runs import events as ev


def samples_used(records: Iterable[Mapping[str, Any]]) -> dict[int, npt.NDArray[np.int64]]:
    """By epoch (from 1): how often each place of its order was used.

    `records` are what `read_events` gives, so that steps which a resume took back do not count. Where each worker goes
    at its own pace (async, ssp), steps do not say what all have used, and nothing is counted.
    """
    counts: dict[int, npt.NDArray[np.int64]] = {}
    num_samples = 0
    for record in records:
        if record["kind"] == ev.Start.kind:
            num_samples = record["train_samples"]
        elif record["kind"] == ev.Step.kind:
            for epoch, first, end in record["used"]:
                counts.setdefault(epoch, np.zeros(num_samples, dtype=np.int64))[first:end] += 1
    return counts
