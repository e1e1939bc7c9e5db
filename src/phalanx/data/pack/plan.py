"""Where shards end, and how many there are."""

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.data.decode.images import BadImage
from phalanx.data.pack.packing import Packing
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import Options

SIZED = 256  # samples whose sizes tell how many shards there will be

Splits = Mapping[Part, Labelled]


@dataclass(frozen=True)
class Prepared:
    """A sample ready to be written, or the reason why it is left out."""

    index: int
    data: Any = None
    reason: str | None = None


def prepared_sample(packing: Packing, part: Part, index: int) -> Prepared:
    try:
        return Prepared(index, packing.prepare(part, index))
    except BadImage as error:
        return Prepared(index, reason=str(error))
    except OSError as error:
        return Prepared(index, reason=f"it cannot be read: {error.strerror or error}")


def shard_ends(splits: Splits, options: Options, part: Part, planned: int | None = None) -> list[int]:
    """The sample at which each shard ends. `--shards` is for the largest split; others get fewer in proportion."""
    count = len(splits[part])
    if planned is None and options.shards is None:
        return [count]
    shards = planned or max(1, round((options.shards or 1) * count / max(map(len, splits.values()))))
    return [count * (number + 1) // shards for number in range(shards)]


def planned_shards(splits: Splits, options: Options, packing: Packing, pool: ThreadPoolExecutor) -> dict[Part, int]:
    """The number of shards of each split, where file names say it: `--shards`, or from the size of some samples."""
    if not packing.says_how_many:
        return {}
    if options.shards is not None:
        return {part: len(shard_ends(splits, options, part)) for part in splits}
    return {part: _by_size(part, len(split), packing, pool) for part, split in splits.items()}


def _by_size(part: Part, count: int, packing: Packing, pool: ThreadPoolExecutor) -> int:
    chosen = np.unique(np.linspace(0, count - 1, SIZED).astype(int)).tolist()
    samples = pool.map(lambda index: prepared_sample(packing, part, index), chosen)
    sizes = [len(sample.data) for sample in samples if sample.reason is None]
    total = count * sum(sizes) / max(1, len(sizes))
    return min(count, max(1, math.ceil(total / packing.shard_bytes)))
