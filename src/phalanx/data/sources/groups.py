"""Groups of samples that belong together (a patient, a burst, an author), from their names, folders or a field."""

import os
import re
from dataclasses import dataclass

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.labelled import Labelled
from phalanx.errors import UserError

FOLDER = "folder"  # as data.group: the folder below the class


@dataclass(frozen=True)
class Groups:
    """The group of each sample as a number, in the order of their first samples; and the names by number."""

    numbers: Indices
    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def describe(self) -> str:
        """So that a user sees whether these are the groups that were meant."""
        sizes = np.bincount(self.numbers)
        some = ", ".join(f"{name} ({size:,})" for name, size in zip(self.names[:3], sizes.tolist(), strict=False))
        return (
            f"{len(self):,} groups, with their images: {some}{' …' * (len(self) > 3)}; the largest has {sizes.max():,}"
        )


def groups_of(source: Labelled, config: DataConfig) -> Groups | None:
    """The groups that data.group or data.group_field ask for."""
    if config.group_field is not None:
        if source.groups is None:
            raise UserError(
                f"data.group_field={config.group_field} is not used",
                why=f"no field of that name was read from {source.description}",
                remedy="name a field or column that the data has; or group by the samples' names: data.group=REGEX",
            )
        return _numbered(source.groups)
    if config.group is None:
        return None
    names = [_name_inside(source, number) for number in range(len(source))]
    if config.group == FOLDER:
        return _numbered(_folders(source, names))
    return _numbered(_matched(config.group, names))


def shared_groups(train: Groups, val: Groups) -> list[str]:
    """A note where groups are in training and in validation, although both are given as they are."""
    both = sorted(set(train.names) & set(val.names))
    if not both:
        return []
    some = ", ".join(both[:3]) + (" …" if len(both) > 3 else "")
    return [
        f"{len(both):,} of {len(val):,} groups of the validation data are in the training data, too ({some}): "
        "the accuracy is higher than on new groups"
    ]


def _numbered(names: list[str]) -> Groups:
    number: dict[str, int] = {}
    numbers = np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)
    return Groups(numbers, list(number))


def _name_inside(source: Labelled, number: int) -> str:
    """A sample's name inside of the data: where the data lies on this machine is no part of it."""
    return os.fsdecode(source.names[number]) if isinstance(source, FileSource) else source.name(number)


def _folders(source: Labelled, names: list[str]) -> list[str]:
    """The first folder below the class, or for other data the folder of the sample."""
    if isinstance(source, FileSource) and source.label_list is None:
        found = [name.split("/")[1:-1][:1] for name in names]
    else:
        found = [[folder] if (folder := name.rpartition("/")[0]) else [] for name in names]
    missing = [name for name, folder in zip(names, found, strict=True) if not folder]
    if missing:
        raise UserError(
            f"data.group=folder: {len(missing):,} of {len(names):,} samples are in no folder of a group",
            why=f"such as {missing[0]}; a group is a folder below the class: CLASS/GROUP/IMAGE",
            remedy="put every image into the folder of its group, or group by names: data.group='(patient[0-9]+)_'",
        )
    return [folder[0] for folder in found]


def _matched(pattern: str, names: list[str]) -> list[str]:
    """What the expression's first group matched in each name, or all that it matched."""
    expression = re.compile(pattern)
    groups, missing = [], []
    for name in names:
        match = expression.search(name)
        if match is None:
            missing.append(name)
        else:
            groups.append(next((text for text in match.groups() if text is not None), match[0]))
    if missing:
        raise UserError(
            f"data.group={pattern}: {len(missing):,} of {len(names):,} samples do not match",
            why=f"such as {', '.join(missing[:3])}",
            remedy="write an expression that finds the group in every name; its first (…) is the group",
        )
    return groups
