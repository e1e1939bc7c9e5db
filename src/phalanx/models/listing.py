"""List models with their costs: parameters, and multiply-adds per image.

At the image size that a model was designed for, costs come from the index, without torch. At other sizes models are
counted, each once: the counts are cached in the user's cache folder, in a file per version of timm and torch.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.models.index import ModelCost, ModelIndex, cache_folder, known_index

CACHE = TypeAdapter(dict[str, ModelCost])


def model_index() -> ModelIndex:
    """The index of the timm that is installed. Making one for a new version takes seconds to minutes, once."""
    known = known_index()
    if known is not None:
        return known
    from phalanx.models.make_index import index_installed

    return index_installed(Console(stderr=True))


def list_models(pattern: str | None = None) -> list[str]:
    """Names that match a glob or contain a word: ours first, then those of other systems, then timm's."""
    index = model_index()
    names = [*index.ours, *index.short, *index.theirs]
    if not pattern:
        return names
    glob = pattern.lower() if any(sign in pattern for sign in "*?[") else f"*{pattern.lower()}*"
    return [name for name in names if fnmatchcase(name.lower(), glob)]


def cost(name: str, image_size: int | None = None) -> ModelCost:
    """The cost of a model at an image size; by default the size that it was designed for."""
    return next(costs([name], image_size))


def costs(names: Iterable[str], image_size: int | None = None) -> Iterator[ModelCost]:
    """The cost of each of many models, one after the other, so that a caller can show progress."""
    indexed = model_index().models if image_size is None else {}
    path = cache_path()
    known: dict[str, ModelCost] | None = None
    for name in names:
        if name in indexed:
            yield indexed[name]
            continue
        known = _read(path) if known is None else known
        key = name if image_size is None else f"{name}@{image_size}"
        if key not in known:
            from phalanx.models.costs import count_cost

            known[key] = count_cost(name, image_size)
            _write(path, known)
        yield known[key]


def cache_path() -> Path:
    return cache_folder() / f"model-costs-timm-{version('timm')}-torch-{version('torch')}.json"


def _read(path: Path) -> dict[str, ModelCost]:
    try:
        return CACHE.validate_json(path.read_bytes())
    except (OSError, ValidationError):  # none yet, or damaged: count again
        return {}


def _write(path: Path, known: dict[str, ModelCost]) -> None:
    with suppress(OSError):  # without a cache, the next listing counts again
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(CACHE.dump_json(known, indent=1))
