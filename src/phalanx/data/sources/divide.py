"""What is trained on and what is validated: the data's own parts, a holdout, or a fold; with or without groups."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices
from phalanx.data.sources.group_holdout import grouped_holdout
from phalanx.data.sources.groups import Groups, groups_of, shared_groups
from phalanx.data.sources.holdout import refuse_share, split_holdout
from phalanx.data.sources.labelled import Labelled, Labels
from phalanx.data.sources.stratify import grouped_folds, stratified_folds
from phalanx.errors import UserError

_FAR = 0.5  # a class whose share is further from the one that is wanted, relative to it, is told
_MOST_TOLD = 5  # classes in a note


class Division(NamedTuple):
    """The parts of a run's data. `test` is the data's own validation part, where a fold is validated instead."""

    train: Labelled
    val: Labelled
    test: Labelled | None
    notes: list[str]


def divide(train: Labelled, val: Labelled | None, config: DataConfig) -> Division:
    """Divide the training part if a fold of it is validated, or if the data has no validation part."""
    groups = groups_of(train, config)
    found = _divide(train, val, config, groups)
    return found if groups is None else found._replace(notes=[groups.describe(), *found.notes])


def _divide(train: Labelled, val: Labelled | None, config: DataConfig, groups: Groups | None) -> Division:
    if config.folds is not None:
        return _fold(train, val, config, groups)
    if val is not None:
        return Division(train, val, None, [] if groups is None else _compared(groups, val, config))
    if groups is None:
        rest, held, notes = split_holdout(train, config.val_share, config.source)
        return Division(rest, held, None, notes)
    refuse_share(config.val_share, config.source)
    chosen = grouped_holdout(train.labels, groups.numbers, config.val_share)
    if not len(chosen):
        raise _undivided(train, groups, config.source)
    return Division(*_parts(train, chosen), None, _holdout_notes(train, chosen, groups, config.val_share))


def _fold(train: Labelled, own_val: Labelled | None, config: DataConfig, groups: Groups | None) -> Division:
    """One fold as validation, the others for training. The data's own validation part stays out."""
    folds, number = config.folds, config.fold
    assert folds is not None
    if number is None:
        raise UserError(
            f"data.folds={folds} does not say which of them is validated",
            why="one run has one validation part; `phalanx train --folds` starts a run for each fold",
            remedy=f"name one, from data.fold=1 to data.fold={folds}",
        )
    pieces, what = (len(train), "training images") if groups is None else (len(groups), "groups")
    if pieces < folds:
        raise UserError(
            f"{pieces:,} {what} cannot be divided into {folds} folds",
            why="every fold needs one at least" + ("" if groups is None else ", and a group is never divided"),
            remedy=f"--folds {pieces}" if pieces > 1 else "more data",
        )
    by_sample = (
        stratified_folds(train.labels, folds) if groups is None else grouped_folds(train.labels, groups.numbers, folds)
    )
    chosen = np.flatnonzero(by_sample == number - 1).astype(np.int64)
    notes = [f"validation: fold {number} of {folds}, {_amount(train, chosen, groups)}", *_lacking(train, chosen)]
    if own_val is not None:
        notes.append(f"the data's own validation part ({len(own_val):,} images) stays out, as a test set")
    return Division(*_parts(train, chosen), own_val, notes)


def _parts(source: Labelled, chosen: Indices) -> tuple[Labelled, Labelled]:
    """(all others, the chosen)."""
    whole = replace(source, groups=None)  # which are of use no longer, and would not fit the parts
    return whole.subset(np.setdiff1d(np.arange(len(source)), chosen)), whole.subset(chosen)


def _holdout_notes(source: Labelled, chosen: Indices, groups: Groups, share: float) -> list[str]:
    notes = [f"validation: {_amount(source, chosen, groups)}, held out", *_lacking(source, chosen)]
    there = class_sizes(source.labels, len(source.classes))
    held = class_sizes(source.labels[chosen], len(source.classes))
    shares = held / np.maximum(1, there)
    # Half a sample is no deviation: nothing could be nearer.
    far = (np.abs(shares - share) > _FAR * share) & (np.abs(held - share * there) > 0.5) & (held > 0)
    if far.any():
        furthest = np.argsort(-np.abs(shares - share) * far, kind="stable")[: min(_MOST_TOLD, int(far.sum()))]
        told = ", ".join(f"{source.classes[c]} {100 * shares[c]:.3g} %" for c in furthest.tolist())
        more = int(far.sum()) - len(furthest)
        notes.append(
            f"whole groups cannot give {100 * share:.3g} % of every class: {told}" + (f" and {more} more" * (more > 0))
        )
    return notes


def _amount(source: Labelled, chosen: Indices, groups: Groups | None) -> str:
    """`12 of 80 groups, 412 of 4,000 images (10.3 %)`."""
    whole = "" if groups is None else f"{len(np.unique(groups.numbers[chosen])):,} of {len(groups):,} groups, "
    return f"{whole}{len(chosen):,} of {len(source):,} images ({100 * len(chosen) / len(source):.3g} %)"


def _lacking(source: Labelled, chosen: Indices) -> list[str]:
    """Classes that only training or only validation has."""
    there = class_sizes(source.labels, len(source.classes))
    held = class_sizes(source.labels[chosen], len(source.classes))
    notes = []
    for missing, part in (((held == 0), "validation"), ((held == there), "training")):
        classes = [source.classes[c] for c in np.flatnonzero(missing & (there > 0)).tolist()]
        if classes:
            some = ", ".join(classes[:_MOST_TOLD]) + (" …" if len(classes) > _MOST_TOLD else "")
            notes.append(f"{part} lacks {len(classes):,} of {int((there > 0).sum()):,} classes: {some}")
    return notes


def class_sizes(labels: Labels, num_classes: int) -> Indices:
    """The samples of each class; one with several labels counts for each of them."""
    sizes: Indices = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=num_classes)
    return sizes


def _compared(groups: Groups, val: Labelled, config: DataConfig) -> list[str]:
    """Groups do not divide data that has a validation part; they tell whether its parts share some."""
    try:
        found = groups_of(val, config)
    except UserError as error:
        return [f"the groups of the validation data are not compared with those of training: {error.what}"]
    return [] if found is None else shared_groups(groups, found)


def _undivided(source: Labelled, groups: Groups, where: str) -> UserError:
    some = ", ".join(groups.names[:3]) + (" …" if len(groups) > 3 else "")
    return UserError(
        f"no group of {where} can be held out for validation",
        why=f"{len(source):,} images are in {len(groups):,} group{'s' * (len(groups) > 1)} ({some}), and every class "
        "keeps one for training",
        remedy="choose another data.group, or name validation data with data.val",
    )
