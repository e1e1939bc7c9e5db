"""What the user of a sweep asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.api.parts import ANYWHERE
from phalanx.config.flags import flag_layers
from phalanx.config.grid import Grid
from phalanx.config.ranges import Range
from phalanx.config.resolve import Layer, flatten, parse_override


@dataclass(frozen=True)
class AskedSweep:
    """What the user asks for. Without a recipe, keys and settings, a resumed sweep goes on as it was planned."""

    grid: Grid
    recipe: str | None = None
    settings: tuple[str | Layer, ...] = ()  # the same for all runs
    flags: Mapping[str, Any] | None = None
    seeds: int | None = None
    folder: Path | None = None
    resume: str | None = None
    init_from: Path | None = None
    accept_code: str | None = None
    command: str = ""
    ranges: Mapping[str, Range] = field(default_factory=dict)  # for a search
    search: str | None = None
    trials: int | None = None  # of a search

    def layers(self) -> list[Layer]:
        """The settings and flags that are the same for all runs."""
        read = (parse_override(one) if isinstance(one, str) else one for one in self.settings)
        return [*flag_layers(self.flags or {}), *read]

    @property
    def elsewhere(self) -> list[Layer]:
        """Those that only say where runs are trained: they may change when a sweep is resumed."""
        return [layer for layer in self.layers() if all(key.startswith(ANYWHERE) for key in flatten(layer.values))]

    @property
    def names_runs(self) -> bool:
        more = len(self.layers()) > len(self.elsewhere)
        return bool(self.recipe or self.grid or self.ranges or more or self.seeds is not None or self.init_from)
