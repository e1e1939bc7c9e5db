"""List models with their costs: parameters, and multiply-adds per image.

Costs are counted on torch's meta device, so large models need no memory. Each takes a fraction of a second, once: the
counts are cached in the user's cache folder, in a file per version of timm and torch.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from phalanx.atomic import write_atomically
from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.migrate.model_names import SHORT_NAMES
from phalanx.models import cifar, zoo
from phalanx.models.build import LISTED, build_model, is_ours
from phalanx.models.classic import CLASSICS


@dataclass(frozen=True)
class ModelCost:
    """Parameters and multiply-adds per image; None if they cannot be counted."""

    params: int | None
    macs: int | None
    image_size: int | None


UNKNOWN = ModelCost(None, None, None)
CACHE = TypeAdapter(dict[str, ModelCost])


def list_models(pattern: str | None = None) -> list[str]:
    """Names that match a glob or contain a word: ours first, then those of other systems, then timm's."""
    import timm

    names = [*LISTED, *SHORT_NAMES, *timm.list_models()]
    if not pattern:
        return names
    glob = pattern.lower() if any(sign in pattern for sign in "*?[") else f"*{pattern.lower()}*"
    return [name for name in names if fnmatchcase(name.lower(), glob)]


def cost(name: str, image_size: int | None = None) -> ModelCost:
    """The cost of a model at an image size; by default the size that it was designed for."""
    return next(costs([name], image_size))


def costs(names: Iterable[str], image_size: int | None = None) -> Iterator[ModelCost]:
    """The cost of each of many models, one after the other, so that a caller can show progress."""
    path = cache_path()
    known = _read(path)
    for name in names:
        key = name if image_size is None else f"{name}@{image_size}"
        if key not in known:
            known[key] = _count(name, image_size)
            _write(path, known)
        yield known[key]


def cache_path() -> Path:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # in a container the user may have no home
        folder = Path(tempfile.gettempdir())
    return folder / "phalanx" / f"model-costs-timm-{version('timm')}-torch-{version('torch')}.json"


def _count(name: str, image_size: int | None) -> ModelCost:
    config, channels = ModelConfig(name=name), 3
    name = config.name  # ours, if another system's name was given
    if is_ours(name):
        classic = CLASSICS.get(name)
        designed, classes = (classic.image_size, classic.num_classes) if classic else (cifar.IMAGE_SIZE, 10)
        channels = classic.channels if classic else 3
        size = (image_size or designed,) * 2
        try:
            with torch.device("meta"):
                model = build_model(config, num_classes=classes, channels=channels, image_size=size[0])
        except UserError:
            if classic is None:
                raise
            return UNKNOWN  # the images are too small for it
    else:
        zoo.require_known(name)
        size = (image_size, image_size) if image_size else zoo.own_input_size(name)
        try:
            sized = image_size is not None and "img_size" in zoo.constructor_names(name)
            model = zoo.build_outline(name, {"img_size": image_size} if sized else {})
        except Exception:  # a model that timm cannot build must not end the listing
            return UNKNOWN
    return ModelCost(sum(p.numel() for p in model.parameters()), _macs(model, size, channels), max(size))


def _macs(model: nn.Module, size: tuple[int, int], channels: int) -> int | None:
    """Multiply-adds per image, as publications count them: convolutions and matrix products."""
    # the counter's hooks fail on parameters that require gradients
    model.eval().requires_grad_(False)
    try:
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(1, channels, *size, device="meta"))
    except Exception:  # a model that depends on values, or cannot take the size
        return None
    return int(counter.get_total_flops()) // 2


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
