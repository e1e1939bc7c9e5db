"""The table of formats to pack into: how a sample is prepared, and the shard writer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from phalanx.data.pack.images import Treatment
from phalanx.data.pack.raw import RawShard
from phalanx.data.pack.rec import RecShard
from phalanx.data.pack.wds import WdsShard
from phalanx.data.sources.labelled import Labelled, LabelRow
from phalanx.data.sources.manifest import FileEntry, Form


class ShardWriter(Protocol):
    """A shard being written: `add` samples in order, then `finish`, or `abandon`, which deletes it."""

    @property
    def size(self) -> int: ...

    def add(self, number: int, label: int | LabelRow, data: Any) -> None: ...

    def finish(self) -> list[FileEntry]: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True)
class Packing:
    """One format. `prepare` turns a sample into the data that shards take, in several threads at once."""

    prepare: Callable[[Labelled, int], Any]
    shard: Callable[[Path], ShardWriter]
    shard_bytes: int


# Formats whose samples may have several labels. In class folders, for example, an image is in one folder.
MULTI_LABEL: tuple[Form, ...] = ("wds", "rec", "raw")
# Raw files are larger: each stays open and mapped while it is used, and a process can have about a thousand open.
SHARD_BYTES: dict[Form, int] = {"wds": 256 * 2**20, "rec": 256 * 2**20, "raw": 2 * 2**30}


def packing(form: Form, treatment: Treatment, classes: list[str]) -> Packing:
    prepare: Callable[[Labelled, int], Any] = treatment.pixels if form == "raw" else treatment.encoded
    shards: dict[Form, Callable[[Path], ShardWriter]] = {
        "wds": WdsShard,
        "rec": lambda stem: RecShard(stem, classes),
        "raw": lambda stem: RawShard(stem, treatment.channels),
    }
    return Packing(prepare, shards[form], SHARD_BYTES[form])
