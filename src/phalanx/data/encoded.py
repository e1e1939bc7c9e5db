"""Samples that are compressed image bytes: decoded, cropped and resized in threads; a bad one is told, not raised."""

from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from phalanx.data.base import Framing, Pixels, Read, View
from phalanx.data.decode import BadImage, decode
from phalanx.data.labelled import Labelled
from phalanx.data.order import Indices
from phalanx.errors import UserError

# Damaged files come alone or in small groups. So many in a row mean that something else is wrong, such as a disk
# that is not mounted, and going on would only hide it.
MOST_BAD_IN_A_ROW = 100


def decode_pool(threads: int) -> Executor | None:
    """Threads that decode, to be shared by all splits of a run; with none of them the caller decodes by itself."""
    return ThreadPoolExecutor(threads, thread_name_prefix="decode") if threads else None


@dataclass
class Sample:
    """What became of one wanted sample: the one used in its place (None: left out), and the bad ones on the way."""

    index: int | None = None
    pixels: Pixels | None = None
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class EncodedSource(Labelled):
    """A Source of compressed images. A format says where the bytes of sample `index` are, and what it is called."""

    pool: Executor | None

    @abstractmethod
    def encoded(self, index: int) -> bytes:
        """The compressed image. OSError or BadImage where it cannot be had. Called from several threads at once."""

    def subset(self, chosen: Indices) -> "EncodedSource":
        return EncodedSubset(
            parent=self,
            chosen=chosen,
            description=self.describe_part(chosen),
            classes=self.classes,
            labels=self.labels[chosen],
            channels=self.channels,
            image_size=self.image_size,
            mean=self.mean,
            std=self.std,
            pool=self.pool,
        )

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        def sample(index: int) -> Sample:
            return self._sample(index, framing, epoch, replace_bad)

        wanted = indices.tolist()
        samples = list(self.pool.map(sample, wanted) if self.pool else map(sample, wanted))
        used = np.array([s.index for s in samples if s.index is not None], dtype=np.int64)
        bad = {index: reason for s in samples for index, reason in s.bad.items()}
        shape = (framing.size, framing.size, self.channels)
        images = _stack((s.pixels for s in samples if s.pixels is not None), len(used), shape)
        return Read(images, self.labels[used], used, list(bad.items()))

    def _sample(self, index: int, framing: Framing, epoch: int, replace_bad: bool) -> Sample:
        """The sample, or the first of those that follow it that decodes: the same one whoever asks."""
        result = Sample()
        for candidate in self._candidates(index, replace_bad):
            try:
                result.pixels = self._decoded(candidate, framing, epoch)
            except BadImage as error:
                result.bad[candidate] = str(error)
            else:
                result.index = candidate
                return result
        if replace_bad:
            raise self._nothing_decodes(result.bad)
        return result

    def _candidates(self, index: int, replace_bad: bool) -> Iterable[int]:
        count = min(MOST_BAD_IN_A_ROW, len(self)) if replace_bad else 1
        return ((index + step) % len(self) for step in range(count))

    def _decoded(self, index: int, framing: Framing, epoch: int) -> Pixels:
        def view_of(height: int, width: int) -> View:
            return framing.views(np.array([index]), np.array([[height, width]]), epoch)[0]

        try:
            data = self.encoded(index)
        except OSError as error:
            raise BadImage(f"it cannot be read: {error.strerror or error}") from error
        return decode(data, view_of, framing.size, self.channels, framing.interpolation, framing.pad_mode)

    def _nothing_decodes(self, bad: dict[int, str]) -> UserError:
        numbers = list(bad)
        first, last = numbers[0], numbers[-1]
        return UserError(
            f"{len(bad)} images in a row do not decode, from {self.name(first)} to {self.name(last)}",
            why=f"{self.name(first)}: {bad[first]}",
            remedy="check that the data is there, readable and whole: one of these files should open in a viewer",
        )


@dataclass(kw_only=True)
class EncodedSubset(EncodedSource):
    """Some samples of an EncodedSource, numbered from 0."""

    parent: EncodedSource
    chosen: Indices

    def encoded(self, index: int) -> bytes:
        return self.parent.encoded(int(self.chosen[index]))

    def name(self, index: int) -> str:
        return self.parent.name(int(self.chosen[index]))


def _stack(images: Iterable[Pixels], count: int, shape: tuple[int, int, int]) -> Pixels:
    out = np.empty((count, *shape), dtype=np.uint8)
    for i, pixels in enumerate(images):
        out[i] = pixels
    return out
