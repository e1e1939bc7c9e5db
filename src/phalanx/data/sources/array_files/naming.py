"""What an array is by its name: `x_train` holds the images of the training split, `val_labels` labels."""

import functools
import re
from typing import Literal

from phalanx.data.sources.splits import WORDS

Role = Literal["images", "labels", "class names"]

ROLES: dict[str, Role] = {
    **dict.fromkeys(("images", "image", "imgs", "img", "x", "xs", "data", "pixels", "inputs", "features"), "images"),
    **dict.fromkeys(("labels", "label", "y", "ys", "targets", "target", "classes", "class", "cls"), "labels"),
    **dict.fromkeys(("names", "categories"), "class names"),
}
# Between a small letter and a capital, and before the last of several capitals: trainImages, XTrain.
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@functools.cache
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case: `Xtrain` is x and train."""
    parts = re.findall(r"[a-z]+|\d+", _HUMPS.sub("_", name).lower())
    return tuple(word for part in parts for word in _unglued(part))


def _unglued(part: str) -> tuple[str, ...]:
    for split in WORDS:
        if part.startswith(split) and part.removeprefix(split) in ROLES:
            return split, part.removeprefix(split)
        if part.endswith(split) and part.removesuffix(split) in ROLES:
            return part.removesuffix(split), split
    return (part,)


def split_of(name: str) -> str | None:
    """The split that a name says: train, val or test; None if it says none."""
    found = [WORDS[word] for word in words_of(name) if word in WORDS]
    return found[-1] if found else None


def role_of(name: str) -> Role | None:
    """What the array holds, by the last word of its name that says it: `image_labels` are labels."""
    found = [ROLES[word] for word in words_of(name) if word in ROLES]
    return found[-1] if found else None


def without_split(name: str) -> tuple[str, ...]:
    """The words of a name without those of its split: the same for `x_train` and `x_test`."""
    return tuple(word for word in words_of(name) if word not in WORDS)
