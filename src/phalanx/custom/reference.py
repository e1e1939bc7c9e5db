"""References to the user's own code: `nets.py:TinyNet`, `./dir/nets.py:build`, `mypackage.nets:build`."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.errors import UserError

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FILE = re.compile(rf"(?P<place>[^\n]+\.py):(?P<name>{_NAME})")
_MODULE = re.compile(rf"(?P<place>{_NAME}):(?P<name>{_NAME})")

# The settings that may hold a reference. Each is a text, or a list or mapping with texts in it.
SETTINGS = (
    *("model.name", "loss.name", "optim.name", "schedule.kind"),
    *("augment.transform", "data.source", "data.val", "eval.metrics", "callbacks"),
)
# `rec:train.rec` is data in a known format, not the name `train.rec` of a module `rec`.
DATA_FORMATS = (
    *("digits", "synthetic", "cifar", "cifar-coarse", "stl10", "svhn", "bin", "idx", "raw", "huggingface", "hf"),
    *("rec", "tfrecord", "wds", "zip", "tar", "remote", "npz", "npy", "hdf5", "folder", "list"),
)


@dataclass(frozen=True)
class Reference:
    """A name in a Python file, or in a module."""

    place: str  # a path that ends in .py, or a dotted module
    name: str

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"


def parse(text: str) -> Reference | None:
    """The reference that a text is, or None."""
    found = _FILE.fullmatch(text) or _MODULE.fullmatch(text)
    if found is None or len(found["place"]) == 1:  # one letter is a drive of Windows
        return None
    return Reference(found["place"], found["name"])


def parse_strictly(text: str) -> Reference:
    """The reference that a text is, or an error that says how one is written."""
    found = parse(text)
    if found is None:
        raise UserError(
            f"{text!r} does not name Python code",
            why="a reference is file.py:Name or package.module:name",
            remedy="for example --model nets.py:TinyNet",
        )
    return found


def is_reference(text: object) -> bool:
    """Whether a value names the user's own code."""
    return isinstance(text, str) and parse(text) is not None


def is_data_reference(text: object) -> bool:
    """The same for `data.source` and `data.val`, where an existing path and a known FORMAT:PATH come first."""
    if not isinstance(text, str) or text.partition(":")[0] in DATA_FORMATS or os.path.lexists(text):
        return False
    return is_reference(text)


def references(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """The references in a tree of settings, by dotted setting."""
    found = {key: list(_texts(key, _value(config, key))) for key in SETTINGS}
    return {key: texts for key, texts in found.items() if texts}


def replaced(config: Mapping[str, Any], by: Mapping[str, str]) -> dict[str, Any]:
    """A tree of settings whose references are replaced as `by` says."""
    tree = dict(config)
    for key in SETTINGS:
        value = _value(tree, key)
        if value is not None:
            section, _, leaf = key.rpartition(".")
            changed = _exchange(key, value, by)
            tree = {**tree, section: {**tree[section], leaf: changed}} if section else {**tree, leaf: changed}
    return tree


def anchored(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A tree of settings from a file in `folder`: relative paths of references are seen from there."""
    by = {}
    for text in (text for texts in references(config).values() for text in texts):
        found = parse_strictly(text)
        if found.is_file and not Path(found.place).is_absolute():
            by[text] = f"{folder / found.place}:{found.name}"
    return replaced(config, by) if by else dict(config)


def _value(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _texts(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_data_reference(value) if key.startswith("data.") else is_reference(value):
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(key, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(key, inner)


def _exchange(key: str, value: Any, by: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return by.get(value, value) if value in _texts(key, value) else value
    if isinstance(value, Mapping):
        return {name: _exchange(key, inner, by) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_exchange(key, inner, by) for inner in value]
    return value
