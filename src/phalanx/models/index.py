"""The index of models: the names and costs of a version of timm, and of ours, read without torch or timm.

`index.json` comes with Phalanx, for one version of timm. For another, an index is made once and kept in the user's
cache folder: most models are in both, and only the others are counted. Made by `python -m phalanx.models.make_index`.
"""

import functools
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phalanx.atomic import write_text_atomically
from phalanx.config.text import read_json

SHIPPED = Path(__file__).with_name("index.json")


@dataclass(frozen=True)
class ModelCost:
    """Parameters and multiply-adds per image; None if they cannot be counted."""

    params: int | None
    macs: int | None
    image_size: int | None


UNKNOWN = ModelCost(None, None, None)
Costs = Mapping[str, ModelCost]


@dataclass(frozen=True)
class ModelIndex:
    """Each model by name, with its cost at the image size that it was designed for."""

    timm: str  # the version of timm that has `theirs`
    ours: Costs  # of Phalanx, in the order of the listing
    short: Costs  # other systems' names for some of them
    theirs: Costs

    @property
    def models(self) -> Costs:
        return {**self.theirs, **self.short, **self.ours}


def cache_folder() -> Path:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # in a container the user may have no home
        folder = Path(tempfile.gettempdir())
    return folder / "phalanx"


def cached_path(timm_version: str) -> Path:
    """Where the index of another version of timm is kept."""
    return cache_folder() / f"model-index-timm-{timm_version}.json"


def known_index() -> ModelIndex | None:
    """The index of the version of timm that is installed; None if it has to be made first."""
    shipped, installed = shipped_index(), version("timm")
    if shipped.timm == installed:
        return shipped
    cached = read_index(cached_path(installed))
    # ours may have changed since the cache was written
    return None if cached is None else ModelIndex(installed, shipped.ours, shipped.short, cached.theirs)


@functools.cache
def shipped_index() -> ModelIndex:
    index = read_index(SHIPPED)
    assert index is not None, f"{SHIPPED} is damaged"
    return index


def read_index(path: Path) -> ModelIndex | None:
    """None if there is none, or it is damaged: it can be made again."""
    try:
        tree = read_json(path.read_bytes())
        return ModelIndex(str(tree["timm"]), *(_costs(tree[part]) for part in ("ours", "short", "theirs")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_index(index: ModelIndex, path: Path) -> None:
    """A line for each model, so that versions can be compared."""
    parts = [f'"timm": {json.dumps(index.timm)}']
    for part, costs in (("ours", index.ours), ("short", index.short), ("theirs", index.theirs)):
        lines = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps([cost.params, cost.macs, cost.image_size])}"
            for name, cost in costs.items()
        )
        parts.append(f'"{part}": {{\n{lines}\n}}')
    write_text_atomically(path, "{" + ",\n".join(parts) + "}\n")


def keep_index(index: ModelIndex) -> None:
    """Write the index of another version of timm into the cache; without one, the next listing makes it again."""
    with suppress(OSError):
        path = cached_path(index.timm)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_index(index, path)


def _costs(rows: dict[str, Any]) -> dict[str, ModelCost]:
    return {name: ModelCost(*map(_count, row)) for name, row in rows.items()}


def _count(number: Any) -> int | None:
    return None if number is None else int(number)
