"""The table of forms to pack into: what becomes of a sample, and the shard that takes it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from phalanx.data.pack.checksums import FileEntry
from phalanx.data.pack.images import Treatment
from phalanx.data.pack.manifest import Form
from phalanx.data.pack.raw import RawShard
from phalanx.data.pack.rec import RecShard
from phalanx.data.pack.wds import WdsShard
from phalanx.data.sources.labelled import Labelled


class ShardWriter(Protocol):
    """A shard being written: samples in their order, then `finish`, or `abandon` and nothing of it is left."""

    @property
    def size(self) -> int: ...

    def add(self, number: int, label: int, data: Any) -> None: ...

    def finish(self) -> list[FileEntry]: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True)
class Packing:
    """One form. `prepare` makes of a sample what the shards take; it is called in several threads at once."""

    prepare: Callable[[Labelled, int], Any]
    shard: Callable[[Path], ShardWriter]
    shard_bytes: int


# A raw file is held open and mapped as long as its data is used, and a process may hold about a thousand: larger ones.
SHARD_BYTES: dict[Form, int] = {"wds": 256 * 2**20, "rec": 256 * 2**20, "raw": 2 * 2**30}


def packing(form: Form, treatment: Treatment, classes: list[str]) -> Packing:
    prepare: Callable[[Labelled, int], Any] = treatment.pixels if form == "raw" else treatment.encoded
    shards: dict[Form, Callable[[Path], ShardWriter]] = {
        "wds": WdsShard,
        "rec": lambda stem: RecShard(stem, classes),
        "raw": lambda stem: RawShard(stem, treatment.channels),
    }
    return Packing(prepare, shards[form], SHARD_BYTES[form])
