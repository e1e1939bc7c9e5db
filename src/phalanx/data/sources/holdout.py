"""The validation holdout of a dataset without one, and class numbers that two datasets share."""

from dataclasses import replace

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.random import bits
from phalanx.data.sources.holdout_multilabel import multi_label_holdout
from phalanx.data.sources.labelled import Labelled, Labels, class_counts
from phalanx.data.sources.multi_label import renumbered
from phalanx.errors import UserError


def holdout_indices(labels: Labels, share: float) -> Indices:
    """The holdout: `share` of each class, at least one sample of two. The same for every seed of a run."""
    if labels.ndim == 2:
        return multi_label_holdout(labels, share)
    # The name of the stream decides the draws: another one would change the holdout of every dataset.
    keys = bits(0, "held out", 0, np.arange(len(labels), dtype=np.int64))[:, 0]
    shuffled = np.lexsort((keys, labels))  # class by class, in random order within each
    sizes = np.bincount(labels)
    place_in_class = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.clip(np.rint(sizes * share), np.minimum(1, sizes - 1), sizes - 1)
    return np.sort(shuffled[place_in_class < np.repeat(wanted, sizes)]).astype(np.int64)


def split_holdout(source: Labelled, share: float, where: str) -> tuple[Labelled, Labelled, list[str]]:
    """(training part, validation part, notes for the user)."""
    refuse_share(share, where)
    chosen = holdout_indices(source.labels, share)
    if not len(chosen):
        raise UserError(
            f"{where} is too small for a validation holdout",
            why="no class has more than one image",
            remedy="name validation data with data.val",
        )
    rest = np.setdiff1d(np.arange(len(source)), chosen)
    notes = [f"{_held_out(len(chosen), len(source), share)}; {where} has no validation part"]
    alone = int(np.sum(class_counts(source.labels, len(source.classes)) == 1))
    if alone:
        notes.append(f"{alone:,} classes have a single image, which is used for training: validation lacks them")
    return source.subset(rest), source.subset(chosen), notes


def _held_out(chosen: int, samples: int, share: float) -> str:
    """What was really held out: of small classes, one image is more than their share."""
    more = chosen - share * samples
    why = ""
    if abs(more) > max(1.0, 0.01 * samples):
        why = " and at least one of each class" if more > 0 else " in whole images of each class"
    real = f"{chosen:,} of {samples:,} images held out ({100 * chosen / samples:.1f} %"
    return f"validation: {real}; data.val_share={share:g}{why})"


def refuse_share(share: float, where: str) -> None:
    """Refuse a share that leaves nothing to train on, or nothing to validate."""
    if not 0 < share < 1:
        raise UserError(
            f"there is no validation data: {where} has no such part and data.val_share is {share:g}",
            why="a run is judged on images that it was not trained on",
            remedy="set data.val_share between 0 and 1, such as 0.1, or name the data with data.val",
        )


def with_classes(source: Labelled, classes: list[str], where: str) -> tuple[Labelled, list[str]]:
    """The source with labels as numbers in `classes`, and notes for the user. It may have fewer classes."""
    if source.classes == classes:
        return source, []
    number = {name: i for i, name in enumerate(classes)}
    present = np.flatnonzero(class_counts(source.labels, len(source.classes))).tolist()
    unknown = [source.classes[label] for label in present if source.classes[label] not in number]
    if not unknown:
        new = np.array([number.get(name, -1) for name in source.classes], dtype=np.int64)
        return replace(source, classes=classes, labels=renumbered(source.labels, new, len(classes))), []
    # Only if no class matches by name: otherwise the numbers of the others could be shifted.
    numbered = are_numbers(source.classes) or are_numbers(classes)
    if numbered and len(source.classes) == len(classes) and len(unknown) == len(present):
        note = f"classes of {where} are matched by number: {source.classes[0]} is {classes[0]}, and so on"
        return replace(source, classes=classes), [note]
    raise UserError(
        f"{where} has {len(unknown):,} classes that are not among the {len(classes):,} known: {_some(unknown)}",
        why=f"classes are matched by name, and the known ones are {_some(classes)}",
        remedy="use the same class names in both, or data with the same classes",
    )


def are_numbers(classes: list[str]) -> bool:
    """Whether the classes have no names: 0, 1, 2 and so on."""
    return classes == [str(i) for i in range(len(classes))]


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
