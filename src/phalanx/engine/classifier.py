"""A saved classifier for the classes of other data: its rows are matched by the names of the classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phalanx.errors import UserError
from phalanx.models.params import classifier_names

NEW_HEAD = "model.new_head=true"


@dataclass(frozen=True)
class Rows:
    """For each class of the data the row of the saved classifier, or None for a fresh one; and a note for the user."""

    saved: list[int | None]
    note: str = ""

    @property
    def in_place(self) -> bool:
        """Whether the saved classifier is used as it is."""
        return self.saved == list(range(len(self.saved)))


def match_classes(saved: Sequence[str], wanted: Sequence[str], origin: str, *, new_head: bool) -> Rows:
    """Which row of a classifier for `saved` classes each of the `wanted` ones gets. Other classes need a new head."""
    place = {name: row for row, name in enumerate(saved)}
    by_name = [place.get(name) for name in wanted]
    shared = len(by_name) - by_name.count(None)
    if list(saved) == list(wanted):
        return Rows(by_name)
    if set(saved) == set(wanted):
        note = f"the {len(wanted):,} classes of {origin} are in another order: its classifier was matched by name"
        return Rows(by_name, note)
    if len(saved) == len(wanted) and not shared and not new_head and (_numbered(saved) or _numbered(wanted)):
        return _by_number(saved, wanted, origin)
    if not new_head:
        raise _other_classes(saved, wanted, shared, origin)
    if _numbered(saved) and _numbered(wanted):  # 3 of seven classes need not be 3 of four
        by_name, shared = [None] * len(wanted), 0
    fresh = len(wanted) - shared
    note = f"the classifier keeps {shared:,} classes of {origin} by name, and starts anew for {fresh:,}"
    return Rows(by_name, note if shared else f"the classifier starts anew: {origin} has other classes")


def fit_classifier(model: nn.Module, tensors: Mapping[str, Tensor], rows: Rows, num_saved: int) -> dict[str, Tensor]:
    """The saved tensors, with the rows of the classifier in their new places and fresh rows as the model has them."""
    if rows.in_place and num_saved == len(rows.saved):
        return dict(tensors)
    current, fitted = model.state_dict(), dict(tensors)
    names = [name for name in classifier_names(model) if name in tensors]
    names = [name for name in names if tensors[name].ndim and len(tensors[name]) == num_saved]
    if not names:
        raise UserError(
            "the classes of the saved weights cannot be matched: the model's classifier is not known",
            why=f"no tensor of a layer called fc, or named by the model's default_cfg, has {num_saved} rows",
            remedy='name the layer in your network: self.default_cfg = {"classifier": "head"}',
        )
    kept = [(new, old) for new, old in enumerate(rows.saved) if old is not None]
    to, of = (torch.tensor([pair[side] for pair in kept], dtype=torch.long) for side in (0, 1))
    for name in names:
        fresh = current[name].detach().clone()
        fresh[to.to(fresh.device)] = tensors[name][of.to(tensors[name].device)].to(fresh)
        fitted[name] = fresh
    return fitted


def _by_number(saved: Sequence[str], wanted: Sequence[str], origin: str) -> Rows:
    """Class 10 is the row of the class called 10, wherever it is; or the tenth, if the other side has names."""
    if _numbered(saved):
        rows = [list(saved).index(str(number)) for number in range(len(wanted))]
    else:
        rows = [int(name) for name in wanted]
    first = wanted[rows.index(0)] if _numbered(wanted) else wanted[0]
    other = saved[0] if _numbered(wanted) else "0"
    named = "the data" if _numbered(wanted) else origin
    note = f"the classes of {named} have no names, so the classifier was matched by number: {other} is {first} …"
    return Rows([*rows], note)


def _other_classes(saved: Sequence[str], wanted: Sequence[str], shared: int, origin: str) -> UserError:
    if len(saved) != len(wanted):
        return UserError(
            f"{origin} has {len(saved)} classes, the data has {len(wanted)}",
            why="the classifier's shape depends on the number of classes",
            remedy=f"use the data that it was trained on; or fine-tune: --init-from with {NEW_HEAD}",
        )
    return UserError(
        f"{origin} was trained on other classes than those of the data",
        why=f"{shared:,} of {len(wanted):,} names are in both; it has {_some(saved)}; the data has {_some(wanted)}",
        remedy=f"fine-tune: --init-from with {NEW_HEAD} keeps the classes with the same names; or, if the classes are "
        "the same under other names, name them alike (data.class_names)",
    )


def _numbered(classes: Sequence[str]) -> bool:
    """Whether classes have no names: 0, 1, 2 and so on, in any order (class folders are sorted as text)."""
    return set(classes) == {str(number) for number in range(len(classes))}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
