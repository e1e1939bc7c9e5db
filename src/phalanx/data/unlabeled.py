"""Images without labels beside the training data: a fixed share of every micro-batch comes from them."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console

from phalanx.config.schema import DataConfig
from phalanx.data.base import Framing, Read, View
from phalanx.data.duplicates import copies_across, fingerprints
from phalanx.data.order import Indices, epoch_order, repeats_of
from phalanx.data.sampling import Sampler
from phalanx.data.sources.encoded import decode_pool, decoded_as
from phalanx.data.sources.folders import Names, file_source, images_below
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import open_whole
from phalanx.errors import UserError
from phalanx.observe.progress import progress

NO_LABEL = -1
SEED_OFFSET = 0x756E6C  # so that the order of the images without labels is not that of the labelled ones


def open_unlabeled(text: str, config: DataConfig, train: Labelled, val: Labelled, threads: int) -> tuple[Labelled, str]:
    """The images of a folder, or the training part of a dataset, without its labels; and a note for the user.

    Images that are also validation images, or look the same, are left out: a teacher's answers about them would be
    learned, and validation would no longer tell how the model does on images that it has never seen.
    """
    try:
        source = _without_labels(_open(text, config, train, threads), train)
    except UserError as error:
        raise UserError(f"distill.unlabeled={text}: {error.what}", why=error.why, remedy=error.remedy) from error
    if not len(source):
        raise UserError(f"distill.unlabeled={text} has no images", remedy="name a folder with images, or a dataset")
    what = "images without labels and of validation, compared:"
    with progress(Console(stderr=True), what, len(source) + len(val)) as advance:
        known = [fingerprints(each, max(1, threads), advance) for each in (source, val)]
    copies = {copy.index for copy in copies_across(*known)}
    kept = np.array([index for index in range(len(source)) if index not in copies], dtype=np.int64)
    if not len(kept):
        raise UserError(
            f"all {len(source):,} images of distill.unlabeled={text} are also validation images",
            why="a student that learns from them could not be judged by them",
            remedy="name other images",
        )
    note = f"{len(kept):,} images without labels from {text}"
    left_out = f"; {len(copies):,} were left out, which are also validation images, or look the same"
    return source.subset(kept) if copies else source, note + (left_out if copies else "")


def _open(text: str, config: DataConfig, train: Labelled, threads: int) -> Labelled:
    path, own = Path(text), config.model_copy(update={"source": text, "channels": train.channels, "val": None})
    names = images_below(path).images if path.is_dir() else []
    if not names:
        parts = open_whole(text, own, threads=threads)
        return decoded_as(own, parts["train"] if "train" in parts else next(iter(parts.values())))
    files = [os.fsencode(path / os.fsdecode(name)) for name in names]
    labels = np.full(len(files), NO_LABEL, dtype=np.int64)
    pool = decode_pool(threads)
    source = file_source(str(path), Path(), Names(files), labels, train.classes, channels=train.channels, pool=pool)
    return decoded_as(own, source)


def _without_labels(source: Labelled, train: Labelled) -> Labelled:
    if source.channels != train.channels:
        raise UserError(
            f"the images without labels have {source.channels} channel(s), the training images {train.channels}",
            remedy="data.channels=1 or 3 reads all of them alike",
        )
    return replace(source, labels=np.full(len(source), NO_LABEL, dtype=np.int64), classes=train.classes)


class WithUnlabeled:
    """A Source: the training samples, and behind them those without labels, whose label is -1."""

    def __init__(self, train: Labelled, unlabeled: Labelled) -> None:
        self.train, self.unlabeled = train, unlabeled
        self.description = f"{train.description}; {unlabeled.description}"
        self.labels = np.concatenate([train.labels, unlabeled.labels])
        self.classes, self.channels, self.image_size = train.classes, train.channels, train.image_size
        self.mean, self.std, self.extent = train.mean, train.std, train.extent

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        first = len(self.train)
        return self.train.name(index) if index < first else self.unlabeled.name(index - first)

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        first = len(self.train)
        without = indices >= first
        if not without.any():
            return self.train.read(indices, framing, epoch, replace_bad=replace_bad)
        ours = self.train.read(indices[~without], framing, epoch, replace_bad=replace_bad)
        shifted = _Behind(framing, first)
        theirs = self.unlabeled.read(indices[without] - first, shifted, epoch, replace_bad=replace_bad)
        theirs.indices = theirs.indices + first
        bad = [*ours.bad, *((index + first, reason) for index, reason in theirs.bad)]
        rows = np.argsort(np.argsort(without, kind="stable"), kind="stable")  # back to the order that was asked for
        images, labels, used = (
            np.concatenate([getattr(part, name) for part in (ours, theirs)])[rows]
            for name in ("images", "labels", "indices")
        )
        return Read(images, labels, used, bad)


@dataclass(frozen=True)
class _Behind:
    """A framing of samples that come behind others: their random choices are those of their numbers there."""

    framing: Framing
    first: int

    @property
    def size(self) -> int:
        return self.framing.size

    @property
    def interpolation(self) -> str:
        return self.framing.interpolation

    @property
    def pad_mode(self) -> str:
        return self.framing.pad_mode

    def views(self, indices: Indices, sizes: npt.NDArray[np.int64], epoch: int) -> list[View]:
        return self.framing.views(indices + self.first, sizes, epoch)


@dataclass(frozen=True)
class MixedSampler:
    """An epoch of the labelled samples, with images without labels between them: `share` of any stretch of it.

    So any micro-batch of n samples has n · share of them, rounded up or down, whoever computes it.
    """

    labelled: Sampler
    num_labelled: int
    num_unlabeled: int
    share: float

    @property
    def epoch_samples(self) -> int:
        return round(self.labelled.epoch_samples / (1 - self.share))

    def order(self, seed: int, epoch: int) -> Indices:
        count, whole = self.epoch_samples, self.num_labelled + self.num_unlabeled
        filled = np.floor(np.arange(count + 1) * ((count - self.labelled.epoch_samples) / count) + 1e-9)
        without = np.diff(filled).astype(np.bool_)
        order = np.empty(count, dtype=np.int64)
        repeats, samples = repeats_of(self.labelled.order(seed, epoch), self.num_labelled)
        order[~without] = samples + repeats * whole  # a repeat is numbered by the size of the source
        turns, places = np.divmod(np.arange(int(without.sum())), self.num_unlabeled)
        drawn = epoch_order(seed ^ SEED_OFFSET, epoch, self.num_unlabeled)
        order[without] = self.num_labelled + drawn[places] + turns * whole
        return order
