"""The user's own dataset as a source: a map-style torch Dataset, or one of torchvision or Hugging Face."""

import inspect
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from phalanx.custom import load
from phalanx.custom.construct import construct, parameters_of
from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.order import Indices
from phalanx.data.sources.dataset_fields import Fields, class_names, class_numbers, classes_of, fields_of, stored_labels
from phalanx.data.sources.dataset_images import as_pixels
from phalanx.data.sources.dataset_labels import label_sets
from phalanx.data.sources.encoded import EncodedSource, as_png
from phalanx.data.sources.folders import suggested
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.probes import probe
from phalanx.data.sources.splits import Split, split_folders
from phalanx.errors import UserError

_THREAD_SAFE = ("torchvision", "datasets", "torch")  # libraries whose datasets may be read by several threads
_VAL_NAMES = ("val", "validation", "test")


@dataclass(kw_only=True)
class DatasetSource(EncodedSource):
    """Samples of a user's dataset. Several threads read it where it says `thread_safe`; else one at a time."""

    where: str  # what the user calls it
    dataset: Any
    fields: Fields
    lock: AbstractContextManager[Any]
    rows: Indices  # sample i is the dataset's sample rows[i]

    def name(self, index: int) -> str:
        return f"{self.where} #{self.rows[index]}"

    def subset(self, chosen: Indices) -> "DatasetSource":
        return replace(self, description=self.describe_part(chosen), labels=self.labels[chosen], rows=self.rows[chosen])

    def pixels(self, index: int, channels: int | None) -> Pixels:
        """One image. What cannot be read is a bad image; any other error is one of the user's code."""
        try:
            with self.lock:
                sample = self.dataset[int(self.rows[index])]
            return as_pixels(self.fields.take(sample, self.where)[0], channels, self.where)
        except OSError as error:  # Pillow's UnidentifiedImageError is one
            raise BadImage(str(error)) from error

    def image(self, index: int) -> Pixels:
        return self.pixels(index, self.channels)

    def encoded(self, index: int) -> bytes:
        return as_png(self.image(index))


@dataclass(frozen=True)
class UserDataset:
    """What a reference in `data.source` or `data.val` names, and how to get a split of it."""

    reference: str
    value: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _parameter(self) -> str | None:
        if not _is_factory(self.value):
            return None
        return next((name for name in ("split", "train") if name in parameters_of(self.value)), None)

    def split(self, part: Part) -> Any:
        """The dataset object of a split; None where there is none."""
        if not _is_factory(self.value):
            return self._part_of(self.value, part)
        if self._parameter == "train":
            return self._called({"train": part == "train"})
        if self._parameter is None:
            return self._part_of(self._called({}), part)
        if part == "train":
            return self._called({"split": part})
        *others, last = _VAL_NAMES  # as the dataset calls it: torchvision's have `test` or `val`
        for name in others:
            try:
                return self._called({"split": name})
            except (UserError, ValueError, KeyError) as error:
                if isinstance(error, UserError) and not isinstance(error.__cause__, ValueError | KeyError):
                    raise
        return self._called({"split": last})

    def _called(self, offered: Mapping[str, Any]) -> Any:
        return construct(self.value, self.reference, "data.options", offered, self.options)

    def _part_of(self, made: Any, part: Part) -> Any:
        splits = self._splits(made)
        if splits is None:
            return made if part == "train" else None
        named = split_folders(map(str, splits))
        wanted: tuple[Split, ...] = ("train",) if part == "train" else ("val", "test")
        return next((splits[named[split][0]] for split in wanted if split in named), None)

    @staticmethod
    def _splits(made: Any) -> Mapping[str, Any] | None:
        """Hugging Face's DatasetDict, or any dictionary of splits."""
        return made if isinstance(made, Mapping) and "train" in made else None


def _is_factory(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def open_dataset(reference: str, want: OpenRequest) -> DatasetSource:
    """The training part of the dataset that a reference names, or all of it."""
    found = UserDataset(reference, load(reference), want.config.options).split("train")
    if found is None:
        raise UserError(
            f"{reference} gives no training data", why="it returned None", remedy="return a dataset for split='train'"
        )
    return _source(found, reference, want)


def open_dataset_val(reference: str, want: OpenRequest) -> DatasetSource | None:
    """Its validation part, if it has one."""
    found = UserDataset(reference, load(reference), want.config.options).split("val")
    return None if found is None else _source(found, reference, want)


def _source(dataset: Any, where: str, want: OpenRequest) -> DatasetSource:
    _refuse_iterable(dataset, where)
    config = want.config
    safe = _thread_safe(dataset)
    lock: AbstractContextManager[Any] = nullcontext() if safe else threading.Lock()

    def item(index: int) -> Any:
        with lock:
            return dataset[index]

    fields = fields_of(dataset, config.image_field, config.label_field, where)
    stored, note = stored_labels(dataset, fields, item, where)
    names = class_names(dataset, fields)
    if config.multi_label:
        classes, labels, kind = label_sets(stored, names, where)
    else:
        labels, kind = class_numbers(stored, where), ""
        classes = classes_of(names, labels, where)
    suggestion = suggested(where, want.channels)
    source = DatasetSource(
        description=f"{where}, {len(labels):,} images in {len(classes):,} classes",
        classes=classes,
        labels=labels,
        channels=suggestion.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        notes=(*_notes(note, safe, where, want.pool), *([kind] if kind else [])),
        pool=want.pool,
        where=where,
        dataset=dataset,
        fields=fields,
        lock=lock,
        rows=np.arange(len(labels), dtype=np.int64),
    )
    return _with_statistics(source, dataset, want.channels)


def _notes(note: str, safe: bool, where: str, pool: Executor | None) -> tuple[str, ...]:
    locked = f"{where} is read by one thread at a time; if several may, set thread_safe = True in the class"
    return (*([note] if note else []), *([locked] if not safe and pool is not None else []))


def _with_statistics(source: DatasetSource, dataset: Any, channels: int | None) -> DatasetSource:
    """Channels, size, mean and deviation, from some of the images; what the dataset itself says comes first."""
    found = probe(len(source), lambda index: source.pixels(index, channels))
    if found is None:
        return source
    mean, std = _own(dataset, "mean") or found.mean, _own(dataset, "std") or found.std
    size = source.image_size if found.extent is None else min(found.extent)
    return replace(source, channels=found.channels, extent=found.extent, image_size=size, mean=mean, std=std)


def _own(dataset: Any, name: str) -> tuple[float, ...] | None:
    """Numbers that the dataset gives; `mean` may also be a method, of something else."""
    found = getattr(dataset, name, None)
    return tuple(float(each) for each in found) if isinstance(found, tuple | list) else None


def _thread_safe(dataset: Any) -> bool:
    said = getattr(dataset, "thread_safe", None)
    if said is not None:
        return bool(said)
    inner = getattr(dataset, "dataset", None)  # torch's Subset
    known = type(dataset).__module__.split(".")[0] in _THREAD_SAFE
    return known and (inner is None or _thread_safe(inner))


def _refuse_iterable(dataset: Any, where: str) -> None:
    lacks = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
    if not lacks:
        return
    iterable = hasattr(dataset, "__iter__")
    raise UserError(
        f"{where} gives {'an iterable-only dataset' if iterable else f'a {type(dataset).__name__}'}",
        why=f"it has no {' and no '.join(lacks)}. Training reads samples by number, in an order that it can resume "
        "exactly and share among workers",
        remedy="give a dataset with __len__ and __getitem__; or write the samples to files: `phalanx data pack`",
    )
