"""The fingerprint of a source, by which a resumed pack knows its data: labels, names, sizes and times."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from phalanx.data.sources.arrays import ArraySource
from phalanx.data.sources.encoded import EncodedSubset
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.raw import RawSource
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.stamp import Stamp


def fingerprint(source: Labelled, places: Sequence[Path]) -> str:
    """The fingerprint of a split found at `places`, with the size and time of every file that it is read from."""
    digest = hashlib.sha256(json.dumps(source.classes).encode())
    digest.update(source.labels.astype("<i8").tobytes())
    for piece in _samples(source, places):
        digest.update(piece)
    return digest.hexdigest()


def _samples(source: Labelled, places: Sequence[Path]) -> Iterator[bytes | memoryview]:
    """The samples of a split: by content in memory, by offset in shards, or by file."""
    if isinstance(source, EncodedSubset):
        yield source.chosen.tobytes()
        yield from _samples(source.parent, places)
    elif isinstance(source, ArraySource):
        yield source.rows.tobytes()
        yield source.images.data.cast("B")
    elif isinstance(source, RawSource):
        yield source.numbers.tobytes()
        yield from (_stamp(file.path) for file in source.files)
    elif isinstance(source, ShardSource):
        yield source.offsets.tobytes()
        yield from (_stamp(shard.path) for shard in source.shards)
    else:
        yield from map(_stamp, source.containers)
        prefixes = [f"{place}{os.sep}" for place in places]  # one place can have several paths
        for index in range(len(source)):
            name = source.name(index)
            short = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
            stamp = source.stamp(index).encode() + b"\0" if isinstance(source, FileSource) else _stamp(Path(name))
            yield os.fsencode(short) + b"\0" + stamp


def _stamp(file: Path) -> bytes:
    stamp = Stamp.of(file)
    return f"{stamp.size} {stamp.mtime_ns}\0".encode()
