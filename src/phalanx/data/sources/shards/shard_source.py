"""A Source over shards: each sample is read at its offset, by any thread, without locks."""

import os
import resource
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.arrays import STATISTICS_IMAGES, statistics
from phalanx.data.sources.dataset_images import with_channels
from phalanx.data.sources.encoded import EncodedSource, as_png
from phalanx.data.sources.folders import suggested
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.probes import Probed, probe
from phalanx.data.sources.shards.classes import classes_of
from phalanx.data.sources.shards.indexing import Reader, Shard, indexed
from phalanx.data.sources.shards.label_sets import classes_of_sets
from phalanx.data.sources.window import read_at

MAX_OPEN = 256
STATISTICS_BYTES = 64 << 20  # of pixels that are read for mean and deviation


class Files:
    """Descriptors of many files, of which the newest few stay open.

    A descriptor is closed when the last thread drops its reference, and never while a thread reads from it.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._open: dict[int, _OpenFile] = {}
        self._changing = threading.Lock()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MAX_OPEN if soft == resource.RLIM_INFINITY else max(1, min(MAX_OPEN, soft // 4))

    def read(self, shard: int, offset: int, count: int) -> bytes:
        """Bytes of a shard. Raises BadImage if the file has changed since it was indexed."""
        file = self._open.get(shard) or self._opened(shard)
        data = read_at(file.descriptor, offset, count)
        if len(data) != count:
            raise BadImage(f"{self._shards[shard].path} ends before offset {offset + count:,}")
        return data

    def _opened(self, shard: int) -> "_OpenFile":
        file, expected = _OpenFile(self._shards[shard].data), self._shards[shard].data_stamp
        status = os.fstat(file.descriptor)
        if (status.st_size, status.st_mtime_ns) != (expected.size, expected.mtime_ns):
            raise BadImage(f"{self._shards[shard].path} has changed since it was indexed")
        with self._changing:
            while len(self._open) >= self._most:
                del self._open[next(iter(self._open))]
            return self._open.setdefault(shard, file)


class _OpenFile:
    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@dataclass(kw_only=True)
class ShardSource(EncodedSource):
    """A Source of samples in shards; `reader` is their format."""

    reader: Reader
    shards: Sequence[Shard]
    files: Files
    starts: list[int]  # the number of the first sample of each shard
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    marks: npt.NDArray[np.uint16]

    def encoded(self, index: int) -> bytes:
        found = self.image(index)
        return found if isinstance(found, bytes) else as_png(found)

    def image(self, index: int) -> bytes | Pixels:
        found = self._image(index)
        return found if isinstance(found, bytes) else with_channels(found, self.channels)

    def pixels(self, index: int, channels: int | None) -> Pixels:
        """The pixels of a sample whose format keeps pixels; with their own channels if `channels` is None."""
        found = self._image(index)
        if isinstance(found, bytes):
            raise TypeError(f"{self.name(index)} is compressed")
        return with_channels(found, channels)

    def _image(self, index: int) -> bytes | Pixels:
        stored = self.files.read(self._shard(index), int(self.offsets[index]), int(self.lengths[index]))
        return self.reader.image(stored, int(self.marks[index]))

    def name(self, index: int) -> str:
        shard = self._shard(index)

        def read(offset: int, count: int) -> bytes:
            return self.files.read(shard, offset, count)

        number, offset, mark = index - self.starts[shard], int(self.offsets[index]), int(self.marks[index])
        return f"{self.shards[shard].path}{self.reader.title(number, offset, mark, read)}"

    def _shard(self, index: int) -> int:
        return bisect_right(self.starts, index) - 1


def open_shards(
    what: str,
    shards: Sequence[Shard],
    reader: Reader,
    request: OpenRequest,
    *,
    given: list[str] | None = None,
) -> ShardSource:
    """The samples of all shards, in their order. `given` has the class names by number, if there is such a list."""
    found = indexed(shards, reader, salvage=request.config.salvage)
    from_one = reader.counts_from_one(found.indexes)
    find_classes = classes_of_sets if request.config.multi_label else classes_of
    classes = find_classes(what, found.indexes, given=given, known=request.classes, from_one=from_one)
    suggestion = suggested(what, request.channels)
    counts = [len(index) for index in found.indexes]
    return ShardSource(
        description=f"{what}, {sum(counts):,} images in {len(classes.names):,} classes",
        classes=classes.names,
        labels=classes.labels,
        channels=suggestion.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        notes=(*found.notes, *classes.notes),
        pool=request.pool,
        reader=reader,
        shards=shards,
        files=Files(shards),
        starts=[0, *accumulate(counts[:-1])],
        offsets=np.concatenate([index.offsets for index in found.indexes]),
        lengths=np.concatenate([index.lengths for index in found.indexes]),
        marks=np.concatenate([index.marks for index in found.indexes]),
    )


def with_pixels(source: ShardSource, request: OpenRequest) -> ShardSource:
    """A source of pixels, not compressed images: with their own channels, size and statistics, from some of them."""
    found = probe(len(source), lambda index: source.pixels(index, request.channels))
    if found is None:
        return source
    size = source.image_size if found.extent is None else min(found.extent)
    mean, std = found.mean, found.std
    if found.extent is not None and request.classes is None:  # of a validation part, those of training are used
        # From as many as of arrays in memory: the same images have the same statistics, however they are kept.
        most = STATISTICS_BYTES // (found.extent[0] * found.extent[1] * found.channels)
        count = max(1, min(len(source), STATISTICS_IMAGES, most))
        images = (_pixels_or_none(source, index * len(source) // count, found) for index in range(count))
        good = np.stack([image for image in images if image is not None])
        mean, std = statistics(good, np.arange(len(good)))
    return replace(source, channels=found.channels, extent=found.extent, image_size=size, mean=mean, std=std)


def _pixels_or_none(source: ShardSource, index: int, like: Probed) -> Pixels | None:
    try:
        image = source.pixels(index, like.channels)
    except (BadImage, OSError):  # training and evaluation report it
        return None
    return image if image.shape[:2] == like.extent else None


def describe(kind: str, paths: Sequence[Path]) -> str:
    """The description of a dataset in these files."""
    if len(paths) == 1:
        return f"{kind} {paths[0]}"
    return f"{len(paths):,} {kind} files ({paths[0]} …)"
