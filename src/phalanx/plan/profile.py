"""A model's profile: what each layer costs, in the order in which the backward pass makes gradients. Without torch.

Profiles of common models come with Phalanx (`python -m phalanx.plan.make_profiles` writes them). Any other model is
counted once, which takes torch some seconds, and kept in the user's cache folder.
"""

import functools
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.atomic import write_text_atomically
from phalanx.config.schema import ModelConfig
from phalanx.custom import is_reference
from phalanx.models.index import cache_folder

SHIPPED = Path(__file__).with_name("profiles.tsv")


@dataclass(frozen=True)
class Cost:
    """Work: operations, multiply-adds × 2 of matrix products and convolutions, bytes that they and the others move."""

    flops: float = 0.0
    matrix_bytes: float = 0.0
    other_bytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + its for mine, its in zip(self.row(), other.row(), strict=True)))

    def __sub__(self, other: "Cost") -> "Cost":
        return self + other * -1

    def __mul__(self, factor: float) -> "Cost":
        return Cost(*(factor * mine for mine in self.row()))

    def row(self) -> tuple[float, float, float, float]:
        return self.flops, self.matrix_bytes, self.other_bytes, self.operations


PerImage = tuple[Cost, Cost]  # of an image, and of a step whatever its images


@dataclass(frozen=True)
class Segment:
    """A part of the backward pass, at whose end the gradient of `param` (its place in the model) is ready."""

    param: int
    image: Cost
    step: Cost


@dataclass(frozen=True)
class ModelProfile:
    """What a model costs: parameters in the model's order, forward, and segments in the order of backward."""

    sizes: tuple[int, ...]  # values of each trained parameter
    rows: tuple[int, ...]  # length of its first dimension; of a vector all of it
    forward: PerImage
    backward: tuple[Segment, ...]
    kept_bytes: int  # of an image: what forward keeps for backward
    frozen: int = 0  # values that are not trained

    @property
    def values(self) -> int:
        return sum(self.sizes)

    @property
    def gradient_bytes(self) -> int:
        return 4 * self.values

    @property
    def flops(self) -> float:
        """Of an image, forwards and backwards."""
        return self.forward[0].flops + sum(segment.image.flops for segment in self.backward)

    def packed(self) -> dict[str, Any]:
        """As JSON: short, since many profiles are in one file."""
        return {
            "sizes": self.sizes,
            "rows": self.rows,
            "kept": self.kept_bytes,
            "frozen": self.frozen,
            "forward": [_short(cost) for cost in self.forward],
            "order": [segment.param for segment in self.backward],
            "backward": [[*_short(each.image), *_short(each.step)] for each in self.backward],
        }

    @classmethod
    def unpack(cls, data: dict[str, Any]) -> "ModelProfile":
        image, step = data["forward"]
        pairs = zip(data["order"], data["backward"], strict=True)
        return cls(
            tuple(data["sizes"]),
            tuple(data["rows"]),
            (Cost(*image), Cost(*step)),
            tuple(Segment(param, Cost(*row[:4]), Cost(*row[4:])) for param, row in pairs),
            data["kept"],
            data["frozen"],
        )


def _short(cost: Cost) -> list[int]:
    return [round(number) for number in cost.row()]


def model_profile(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> ModelProfile:
    """The profile of a configuration's model: shipped, from the cache, or counted now."""
    key = profile_key(config, num_classes, channels, image_size)
    shipped = shipped_profiles().get(key)
    if shipped is not None:
        return shipped
    path = cache_folder() / "profiles" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    if not is_reference(config.name):  # the user's own code may have changed
        with suppress(OSError, ValueError, KeyError, TypeError):
            return ModelProfile.unpack(json.loads(path.read_bytes()))
    from phalanx.plan.count_layers import count_layers

    profile = count_layers(config, num_classes=num_classes, channels=channels, image_size=image_size)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, json.dumps(profile.packed(), separators=(",", ":")))
    return profile


def profile_key(config: ModelConfig, num_classes: int, channels: int, image_size: int) -> str:
    """What a profile depends on. Weights do not matter, nor rates of dropout."""
    parts = [config.name.partition(".")[0] if not is_reference(config.name) else config.name]
    parts += [f"{image_size}x{image_size}x{channels}", f"{num_classes}"]
    if config.options or config.freeze:
        parts.append(json.dumps([config.options, config.freeze], sort_keys=True))
    return " ".join(parts)


@functools.cache
def shipped_profiles() -> "Profiles":
    return Profiles(SHIPPED)


class Profiles:
    """A file with a line for each profile: only lines that are asked for are parsed."""

    def __init__(self, path: Path) -> None:
        self._lines: dict[str, str] = {}
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                key, _, text = line.partition("\t")
                self._lines[key] = text

    def __len__(self) -> int:
        return len(self._lines)

    def keys(self) -> list[str]:
        return list(self._lines)

    def get(self, key: str) -> ModelProfile | None:
        text = self._lines.get(key)
        return None if text is None else ModelProfile.unpack(json.loads(text))


def write_profiles(path: Path, profiles: Sequence[tuple[str, ModelProfile]]) -> None:
    """A line for each: its key, a tab, and JSON."""
    lines = [f"{key}\t{json.dumps(each.packed(), separators=(',', ':'))}\n" for key, each in profiles]
    write_text_atomically(path, "".join(lines))
