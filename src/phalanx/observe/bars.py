"""Small pictures of characters: a bar, a bar of parts, a curve in one line. Readable without colours, and in ASCII."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*%#"


@dataclass(frozen=True)
class Part:
    """A part of a step's time: its character tells it from the others where there are no colours."""

    character: str
    ascii: str
    style: str


# In the order in which a bar shows them.
PARTS: Mapping[str, Part] = {
    "data": Part("▚", "o", "yellow"),
    "compute": Part("█", "#", "blue"),
    "exchange": Part("▒", "+", "magenta"),
    "update": Part("▓", "=", "cyan"),
    "waiting": Part("·", ".", "bright_black"),
}


def bar(share: float, width: int, *, ascii_only: bool = False, style: str = "green") -> Text:
    """How much of something is done."""
    done = round(max(0.0, min(1.0, share)) * width)
    line, rest = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble((line * done, style), (rest * (width - done), "bright_black"))


def parts_bar(shares: Mapping[str, float], width: int, *, ascii_only: bool = False) -> Text:
    """The shares of PARTS as one bar. All of it together is as wide as their sum, at most 1."""
    text, reached, drawn = Text(), 0.0, 0
    for name, part in PARTS.items():
        reached += max(0.0, shares.get(name, 0.0))
        cells = round(min(1.0, reached) * width) - drawn
        text.append((part.ascii if ascii_only else part.character) * cells, style=part.style)
        drawn += cells
    return text.append(" " * (width - drawn))


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """A curve, from its lowest to its highest value. Of many values, means of neighbours."""
    levels = _ASCII_LEVELS if ascii_only else _LEVELS
    shown = _means([value for value in values if value == value], width)
    if not shown:
        return " " * width
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    top = len(levels) - 1
    line = "".join(levels[round((value - low) / span * top)] if high > low else levels[top // 2] for value in shown)
    return line.ljust(width)


def _means(values: Sequence[float], count: int) -> list[float]:
    if len(values) <= count:
        return list(values)
    edges = [number * len(values) // count for number in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
