"""Samples that are compressed images, or pixels read one image at a time: cropped and resized in threads.

Bad ones are reported, not raised.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.data.base import Framing, Pixels, Read, View
from phalanx.data.decode.gpu import gpu_decoder
from phalanx.data.decode.images import FAST, BadImage, Decoding, Target, ViewsOf, decode_all
from phalanx.data.decode.jpeg import decoder_status, find_decoder
from phalanx.data.decode.limits import Limits
from phalanx.data.decode.resize import resize_all
from phalanx.data.order import Indices
from phalanx.data.sources.labelled import Labelled
from phalanx.errors import UserError

# Damaged files come alone or in small groups. So many in a row mean that something else is wrong, such as a disk
# that is not mounted, and going on would only hide it.
MAX_BAD_IN_A_ROW = 100

# Samples that a thread takes at a time: choosing the views of all of them takes as long as of one.
MAX_TOGETHER = 16


class DecodePool(ThreadPoolExecutor):
    """Threads that decode. A batch is split according to their number."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="decode")
        self.threads = threads


def decode_pool(threads: int) -> DecodePool | None:
    """Threads that all splits of a run share; with 0 the calling thread decodes."""
    return DecodePool(threads) if threads else None


@dataclass
class Sample:
    """The result of one sample: the index that was used for it (None: left out), and the bad ones that were tried."""

    index: int | None
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class EncodedSource(Labelled):
    """A Source of compressed images. Formats implement `encoded` and `name`; those with pixels also `image`."""

    pool: Executor | None
    decoding: Decoding = FAST

    def prepare(self, indices: Sequence[int]) -> None:
        """These samples will be read soon: what has to be fetched from elsewhere may begin to come."""
        return

    def parts_of_batch(self, count: int) -> list[slice]:
        """How a batch is divided among threads. A single part is made by the calling thread."""
        return list(batch_parts(count, self.pool))

    @abstractmethod
    def encoded(self, index: int) -> bytes:
        """The compressed image. Raises OSError or BadImage. Called from several threads at once."""

    def image(self, index: int) -> bytes | Pixels:
        """The compressed image; or its pixels (height, width, channels), where the format keeps those. Raises alike."""
        return self.encoded(index)

    def stored(self, index: int) -> bytes:
        image = self.image(index)
        return image if isinstance(image, bytes) else image.tobytes()

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
            extent=self.extent,
            left_out=self.left_out,
            pool=self.pool,
            decoding=self.decoding,
        )

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        wanted = indices.tolist()
        out = np.empty((len(wanted), framing.size, framing.size, self.channels), dtype=np.uint8)

        def fill(part: slice) -> list[Sample]:
            return self._fill(wanted[part], framing, epoch, replace_bad, out[part])

        self.prepare(wanted)
        parts = self.parts_of_batch(len(wanted))
        threads = self.pool if len(parts) > 1 else None
        samples = list(chain.from_iterable(threads.map(fill, parts) if threads else map(fill, parts)))
        kept = [place for place, sample in enumerate(samples) if sample.index is not None]
        used = np.array([samples[place].index for place in kept], dtype=np.int64)
        bad = {index: reason for sample in samples for index, reason in sample.bad.items()}
        images = out if len(kept) == len(wanted) else out[kept]
        return Read(images, self.labels[used], used, list(bad.items()))

    def _fill(self, wanted: list[int], framing: Framing, epoch: int, replace_bad: bool, out: Pixels) -> list[Sample]:
        """Decode samples, each to its place. A bad one is replaced by the first one after it that decodes."""
        samples = []
        for place, (index, reason) in enumerate(zip(wanted, self._decode(wanted, framing, epoch, out), strict=True)):
            sample = Sample(index)
            if reason:
                sample = Sample(None, {index: reason})
                if replace_bad:
                    self._replace(sample, index, framing, epoch, out[place : place + 1])
            samples.append(sample)
        return samples

    def _replace(self, sample: Sample, index: int, framing: Framing, epoch: int, out: Pixels) -> None:
        for step in range(1, min(MAX_BAD_IN_A_ROW, len(self))):
            candidate = (index + step) % len(self)
            (reason,) = self._decode([candidate], framing, epoch, out)
            if not reason:
                sample.index = candidate
                return
            sample.bad[candidate] = reason
        raise self._nothing_decodes(sample.bad)

    def _decode(self, wanted: list[int], framing: Framing, epoch: int, out: Pixels) -> list[str]:
        """Decode samples, each to its place. Returns the error of each, empty for a good one."""
        data, reasons, pixels = dict[int, bytes](), [""] * len(wanted), dict[int, Pixels]()
        for place, index in enumerate(wanted):
            try:
                found = self.image(index)
            except OSError as error:
                reasons[place] = f"it cannot be read: {error.strerror or error}"
            except BadImage as error:
                reasons[place] = str(error)
            else:
                if isinstance(found, bytes):
                    data[place] = found
                else:
                    pixels[place] = found
        numbers = np.array(wanted, dtype=np.int64)

        def views_of(places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> list[View]:
            return framing.views(numbers[places], sizes, epoch)

        target = Target(out, framing.interpolation, framing.pad_mode)
        if data:
            # An image that could not be read, or needs no decoding, has no bytes.
            decoded = decode_all(
                [data.get(place, b"") for place in range(len(wanted))], views_of, self.decoding, target
            )
            for place in data:
                reasons[place] = decoded[place]
        if pixels:
            _frame(pixels, views_of, target)
        return reasons

    def _nothing_decodes(self, bad: dict[int, str]) -> UserError:
        numbers = list(bad)
        first, last = numbers[0], numbers[-1]
        return UserError(
            f"{len(bad)} images in a row do not decode, from {self.name(first)} to {self.name(last)}",
            why=f"{self.name(first)}: {bad[first]}",
            remedy="check that the data is there, readable and complete: one of these files should open in a viewer",
        )


@dataclass(kw_only=True)
class EncodedSubset(EncodedSource):
    """Some samples of an EncodedSource, numbered from 0."""

    parent: EncodedSource
    chosen: Indices

    def encoded(self, index: int) -> bytes:
        return self.parent.encoded(int(self.chosen[index]))

    def image(self, index: int) -> bytes | Pixels:
        return self.parent.image(int(self.chosen[index]))

    def prepare(self, indices: Sequence[int]) -> None:
        self.parent.prepare(self.chosen[indices].tolist())

    def name(self, index: int) -> str:
        return self.parent.name(int(self.chosen[index]))


def _frame(pixels: dict[int, Pixels], views_of: ViewsOf, target: Target) -> None:
    """Crop and resize images that need no decoding, each to its place in the target."""
    places, images = list(pixels), list(pixels.values())
    sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)
    views = views_of(np.array(places, dtype=np.int64), sizes)
    made = np.empty((len(images), *target.out.shape[1:]), dtype=np.uint8)
    resize_all(images, views, made.shape[1], target.interpolation, target.pad_mode, made)
    target.out[places] = made


def as_png(pixels: Pixels) -> bytes:
    """Pixels as a compressed image, for those who take nothing else, such as packing."""
    out = BytesIO()
    Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]).save(out, "PNG")
    return out.getvalue()


def decoded_as(config: DataConfig, source: Labelled) -> Labelled:
    """The source with the decoding of the configuration, if its images are compressed."""
    if not isinstance(source, EncodedSource):
        return source
    gpu = gpu_decoder() if config.decode == "gpu" else None
    return replace(source, decoding=Decoding(config.decode == "exact", config.exif_orientation, Limits.of(config), gpu))


def slow_decoding(source: Labelled) -> list[str]:
    """A note for users without the native decoder."""
    if not isinstance(source, EncodedSource) or find_decoder() is not None:
        return []
    return [f"JPEGs are decoded by {decoder_status()}; native code takes a third of the time"]


def batch_parts(count: int, pool: Executor | None) -> Iterator[slice]:
    """Parts of a batch for threads: smaller and smaller, so that all threads end at nearly the same time."""
    threads = pool.threads if isinstance(pool, DecodePool) else 1
    low = 0
    while low < count:
        size = min(MAX_TOGETHER, max(1, (count - low) // (2 * threads)))
        yield slice(low, low + size)
        low += size
