"""Training data of a single class: refused, since any network is right on it without learning anything."""

from pathlib import Path

import numpy as np

from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.layouts.refusals import how_to_label, outline
from phalanx.data.sources.layouts.tree import FolderTree
from phalanx.errors import UserError


def only_class(source: Labelled) -> str | None:
    """The class of all samples, if they have the same; None for several classes, or several labels a sample."""
    if source.multi_label:
        return None
    present = np.unique(source.labels).tolist()
    return source.classes[present[0]] if len(present) == 1 else None


def one_class(train: Labelled, only: str, where: str, path: Path) -> UserError:
    """The refusal. `path` is what was opened, if it is a file or folder."""
    seen = f"{train.description}; seen in " + outline(FolderTree(), path) if path.is_dir() else train.description
    remedy = "check which field or column is the label (data.label_field, data.label_element), or give other data"
    if isinstance(train, FileSource) and train.label_list is None:
        first = Path(train.name(0))
        seen += f"; its images are such as {first.relative_to(path) if path in first.parents else first}"
        remedy = f"name the folder whose folders are the classes; or {how_to_label(first.parent, first.name)}"
    return UserError(
        f"all {len(train):,} images of {where} are of one class: {only!r}",
        why=f"a classifier learns to tell classes apart; {seen}",
        remedy=remedy,
    )
