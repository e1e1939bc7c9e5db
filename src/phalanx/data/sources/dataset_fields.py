"""What a user's dataset object says of itself: samples, labels and classes, in the ways of torch and Hugging Face."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.data.sources.labelled import Labels
from phalanx.errors import UserError

IMAGE_NAMES = ("image", "img", "pixels", "jpg", "png")
LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "cls")
_LABEL_ATTRIBUTES = ("targets", "labels", "_labels")  # torchvision has all three


@dataclass(frozen=True)
class Fields:
    """Where a sample's image and label are: places in a tuple, or names in a dictionary."""

    image: Any
    label: Any

    def take(self, sample: Any, where: str) -> tuple[Any, Any]:
        """(image, label) of one sample."""
        try:
            return sample[self.image], sample[self.label]
        except (TypeError, KeyError, IndexError) as error:
            given = f"a dictionary of {', '.join(map(str, sample))}" if isinstance(sample, Mapping) else type(sample)
            raise UserError(
                f"{where}: a sample is not an image with a label",
                why=f"it is {given}",
                remedy="return (image, label) from __getitem__, or name the fields: data.image_field, data.label_field",
            ) from error


def fields_of(dataset: Any, image: str | None, label: str | None, where: str) -> Fields:
    """By the first sample; Hugging Face datasets say it in `features`."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping):
        first = dataset[0]
        if not isinstance(first, Mapping):
            return Fields(0, 1)
        features = dict.fromkeys(first)
    by_kind = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    classes = [name for name, kind in features.items() if type(kind).__name__ == "ClassLabel"]
    classes += [name for name, kind in features.items() if _names_in(kind) and name not in classes]
    return Fields(
        _chosen("image", image, [*by_kind[:1], *IMAGE_NAMES], features, where),
        _chosen("label", label, [*classes[:1], *LABEL_NAMES], features, where),
    )


def _chosen(what: str, given: str | None, usual: Sequence[str], names: Mapping[str, Any], where: str) -> str:
    for name in [given] if given is not None else usual:
        if name in names:
            return name
    raise UserError(
        f"{where}: no field of the samples is the {what}" if given is None else f"{where}: there is no field {given!r}",
        why=f"the fields are {', '.join(names)}",
        remedy=f"name one of them: data.{what}_field=NAME",
    )


def stored_labels(dataset: Any, fields: Fields, item: Callable[[int], Any], where: str) -> tuple[Sequence[Any], str]:
    """The label of each sample as the dataset has it, and a note where samples had to be read for them."""
    found = _known_labels(dataset, fields)
    note = ""
    if found is None:
        found = [fields.take(item(index), where)[1] for index in range(len(dataset))]
        note = f"{where}: all {len(found):,} samples were read once for their labels; a list `targets` saves that time"
    if len(found) != len(dataset):
        raise UserError(
            f"{where} has {len(found):,} labels and {len(dataset):,} samples",
            why="its `targets` or `labels` are those of other samples",
            remedy="make them as long as the dataset, or remove them",
        )
    return found, note


def class_numbers(stored: Sequence[Any], where: str) -> Labels:
    """The labels of samples that have one class each."""
    try:
        return np.array([int(label) for label in stored], dtype=np.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        several = hasattr(stored[0], "__len__") and not isinstance(stored[0], str)
        raise UserError(
            f"{where}: samples have several labels" if several else f"{where}: labels are not whole numbers",
            why=f"the first is {stored[0]!r:.200}",
            remedy="train on all labels of a sample: data.multi_label=true; or return the number of its only class"
            if several
            else "return the number of the class, and the names of all as `classes`",
        ) from error


def _known_labels(dataset: Any, fields: Fields) -> Sequence[Any] | None:
    """Labels that can be had without images; those of torch's Subset through the dataset that it is a part of."""
    for name in _LABEL_ATTRIBUTES:
        found = getattr(dataset, name, None)
        if found is not None and hasattr(found, "__len__"):
            return [*found]
    if hasattr(dataset, "features") and isinstance(fields.label, str):
        return [*dataset[fields.label]]
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if inner is not None and indices is not None:
        whole = _known_labels(inner, fields)
        return None if whole is None else [whole[int(index)] for index in indices]
    return None


def class_names(dataset: Any, fields: Fields) -> list[str] | None:
    """The names of the classes; None where the dataset has no names."""
    names = getattr(dataset, "classes", None)
    if names is None:
        features = getattr(dataset, "features", None)
        names = _names_in(features[fields.label]) if isinstance(features, Mapping) else None
    if names is None and getattr(dataset, "dataset", None) is not None:
        return class_names(dataset.dataset, fields)
    if names is None:
        return None
    return [" / ".join(map(str, name)) if isinstance(name, tuple | list) else str(name) for name in names]


def _names_in(kind: Any) -> Any:
    """The names of Hugging Face's ClassLabel, also in a list of it."""
    return getattr(kind, "names", None) or getattr(getattr(kind, "feature", None), "names", None)


def classes_of(names: list[str] | None, labels: Labels, where: str) -> list[str]:
    """The names of the classes; their numbers where the dataset has no names."""
    count = int(labels.max(initial=-1)) + 1
    classes = [str(number) for number in range(count)] if names is None else names
    if count > len(classes) or labels.min(initial=0) < 0:
        raise UserError(
            f"{where} has the label {labels.max() if count > len(classes) else labels.min()}",
            why=f"it has {len(classes)} classes, numbered from 0",
            remedy="correct its labels or its `classes`",
        )
    return classes
