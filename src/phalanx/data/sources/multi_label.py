"""Several labels a sample: labels (n, classes) of zeros and ones, under the classes of the training data."""

from dataclasses import replace

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.labelled import Labelled, Labels, class_counts
from phalanx.errors import UserError


def labelled_as(config: DataConfig, source: Labelled, where: str) -> tuple[Labelled, list[str]]:
    """The source with one label a sample, or several, as data.multi_label says; and notes for the user."""
    if not config.multi_label:
        if source.multi_label:
            raise several_labels(where)
        return source, []
    notes = []
    if not source.multi_label:
        source = replace(source, labels=one_hot(source.labels, len(source.classes)))
        notes.append(f"every sample of {where} has one label, though data.multi_label allows several")
    each = source.labels.sum() / max(1, len(source))
    return replace(source, description=f"{source.description}, {each:.3g} labels a sample"), notes


def several_labels(where: str) -> UserError:
    """The refusal of data whose samples have several labels, where nothing says that they may."""
    return UserError(
        f"{where} has several labels a sample",
        why="by default a classifier's image has one class",
        remedy="train on all labels of a sample, with BCE and mAP: data.multi_label=true",
    )


def one_hot(labels: Labels, num_classes: int) -> Labels:
    """Class numbers (n,) as (n, classes): a one for the only class of each sample."""
    out: Labels = np.zeros((len(labels), num_classes), dtype=np.int64)
    out[np.arange(len(labels)), labels] = 1
    return out


def with_more_classes(source: Labelled, classes: list[str]) -> Labelled:
    """The source under classes of which it may lack the last ones."""
    lacking = len(classes) - len(source.classes)
    labels = np.pad(source.labels, ((0, 0), (0, lacking))) if source.multi_label else source.labels
    return replace(source, classes=classes, labels=labels)


def renumbered(labels: Labels, new: Labels, num_classes: int) -> Labels:
    """The labels under other class numbers: class i becomes new[i], or -1 where no sample has it."""
    if labels.ndim == 1:
        return new[labels]
    out: Labels = np.zeros((len(labels), num_classes), dtype=np.int64)
    kept = new >= 0
    out[:, new[kept]] = labels[:, kept]
    return out


def judged_classes(source: Labelled, where: str) -> list[str]:
    """A note about classes that validation cannot judge. Data without any label is refused."""
    lacking = np.flatnonzero(class_counts(source.labels, len(source.classes)) == 0).tolist()
    if len(lacking) == len(source.classes):
        raise UserError(
            f"no sample of {where} has a label",
            why=f"all of its {len(source):,} samples are without any of the {len(source.classes):,} classes",
            remedy="check its labels, or name other data with data.val",
        )
    if not lacking:
        return []
    shown = ", ".join(source.classes[number] for number in lacking[:5]) + (" …" if len(lacking) > 5 else "")
    return [f"mAP is without {len(lacking):,} classes that no sample of {where} has: {shown}"]
