"""The parts of all workers come to the first one, which makes the profile of the job from them."""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from phalanx.engine.profile.clocks import ClockOffset
from phalanx.exchange.base import WorkerGroup

Data = dict[str, Any]


def gather_parts(part: Data, group: WorkerGroup) -> list[Data]:
    """The parts of all workers by rank: on rank 0, and nothing elsewhere. All workers call this.

    A worker that was lost meanwhile has none.
    """
    share = group.share
    if share.world == 1:
        return [part]
    mine = zlib.compress(json.dumps(part, separators=(",", ":")).encode())
    sizes = [int(size) for size in group.sum([float(len(mine)) * (rank == share.rank) for rank in range(share.world)])]
    padded = np.zeros(max(sizes), dtype=np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, dtype=np.uint8)
    rows = group.gather(torch.from_numpy(padded))
    received = (row.cpu().numpy()[:size].tobytes() for row, size in zip(rows, sizes, strict=False) if size)
    return [json.loads(zlib.decompress(one)) for one in received if any(one)]


def merged(about: Data, parts: Sequence[Data], clocks: Sequence[ClockOffset], *, lockstep: bool) -> Data:
    """The content of profile.json, without advice."""
    waited = waiting(parts) if lockstep and len(parts) > 1 else None
    workers = []
    for number, part in enumerate(parts):
        clock = clocks[part["rank"]]
        own = {name: value for name, value in part.items() if name != "spans"}
        own["clock"] = {"ahead_ms": round(clock.ahead * 1e3, 6), "error_ms": round(clock.error * 1e3, 6)}
        own["waited_ms"] = None if waited is None else round(waited[number], 6)
        workers.append(own)
    return {**about, "slowest": None if waited is None else _slowest(parts, waited), "workers": workers}


def waiting(parts: Sequence[Data]) -> list[float]:
    """Milliseconds of a step that each worker waited for the last one, within what it spent on the exchange."""
    steps = list(zip(*(part["steps"] for part in parts), strict=False))
    totals = [0.0] * len(parts)
    for step in steps:
        last = max(map(_own, step))
        for number, one in enumerate(step):
            totals[number] += min(one["exchange"], last - _own(one))
    return [total / max(1, len(steps)) for total in totals]


def _own(step: Data) -> float:
    """What a worker needs for a step by itself."""
    return float(step["ms"] - step["exchange"])


def _slowest(parts: Sequence[Data], waited: Sequence[float]) -> Data:
    """The worker that needs longest by itself, at what it is slower than the others, and how long they wait."""
    own = [sum(map(_own, part["steps"])) / len(part["steps"]) for part in parts]
    slow = max(range(len(parts)), key=own.__getitem__)
    others = [number for number in range(len(parts)) if number != slow]
    names = [name for name in parts[slow]["parts"] if name != "exchange"]
    excess = {
        name: parts[slow]["parts"][name] - sum(parts[other]["parts"][name] for other in others) / len(others)
        for name in names
    }
    at = max(names, key=excess.__getitem__)
    return {
        "rank": parts[slow]["rank"],
        "host": parts[slow]["host"],
        "own_ms": round(own[slow], 6),
        "others_own_ms": round(sum(own[other] for other in others) / len(others), 6),
        "others_waited_ms": round(sum(waited[other] for other in others) / len(others), 6),
        "at": at,
        "at_ms": round(excess[at], 6),
    }
