"""How curves are drawn: the options of `phalanx plot` and of `phalanx.plot`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from phalanx.errors import UserError
from phalanx.observe.curves import AXES, Axis

Seeds = Literal["range", "std", "lines"]
Style = Literal["screen", "paper"]
Part = Literal["train", "val"]
Limits = tuple[float | None, float | None]


@dataclass(frozen=True)
class PlotOptions:
    """What is drawn of runs and logs, and how."""

    axis: Axis | None = None  # None: epochs, or what all logs have
    panels: Sequence[str] = ()  # top1, top5, loss, lr, or a metric's name; none: what is there
    only: Part | None = None  # train or val; None: both
    seeds: Seeds = "range"  # runs that differ in their seed alone: mean and a band, or a line each
    smooth: float = 0.0  # weight of the moving average of training curves
    xlim: Limits = (None, None)
    ylim: Mapping[str, Limits] = field(default_factory=dict)  # by panel
    log: Sequence[str] = ()  # panels with a logarithmic axis
    style: Style = "screen"
    tags: Mapping[str, str] = field(default_factory=dict)  # curve → what a log calls it

    def __post_init__(self) -> None:
        if self.axis is not None and self.axis not in AXES:
            raise UserError(
                f"curves cannot be drawn against {self.axis!r}", why="unknown axis", remedy=f"one of {', '.join(AXES)}"
            )
        if not 0 <= self.smooth < 1:
            raise UserError(
                f"smooth cannot be {self.smooth:g}",
                why="it is the weight of what came before, from 0 to below 1",
                remedy="0.6 smooths a little, 0.95 much",
            )
        words = (("seeds", self.seeds, Seeds), ("style", self.style, Style), ("only", self.only, Part))
        for name, value, kind in words:
            known = get_args(kind)
            if value is not None and value not in known:
                raise UserError(f"{name} cannot be {value!r}", why="unknown word", remedy=f"one of {', '.join(known)}")

    @property
    def parts(self) -> tuple[Part, ...]:
        return ("train", "val") if self.only is None else (self.only,)


def parse_limits(text: str, flag: str) -> Limits:
    """`0:20`, `20:` or `:20`."""
    low, colon, high = text.partition(":")
    try:
        found = (float(low) if low.strip() else None, float(high) if high.strip() else None)
    except ValueError:
        found, colon = (None, None), ""
    if not colon or (found[0] is not None and found[1] is not None and found[0] >= found[1]):
        raise UserError(
            f"{flag} {text} is no range",
            why="it is the lowest and the highest value",
            remedy=f"{flag} 0:20, 20: or :20",
        )
    return found


def parse_named(text: str, flag: str, example: str) -> tuple[str, str]:
    """`top1=80:95` → (top1, 80:95)."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UserError(f"{flag} {text} lacks a name or a value", why="it is NAME=VALUE", remedy=f"{flag} {example}")
    return name.strip(), value.strip()
