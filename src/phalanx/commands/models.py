"""`phalanx models`: our models and timm's, by name, with parameters and GMACs."""

import re
from collections import Counter
from collections.abc import Iterable

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from phalanx.errors import UserError, nearest
from phalanx.models.index import ModelCost
from phalanx.models.listing import costs, list_models, model_index
from phalanx.observe.tables import print_line, tab_separated

MANY = 40  # models; counting this many takes long enough for a message
_TITLES = ("model", "parameters, M", "GMACs", "image size")


def show_models(console: Console, pattern: str | None, size: int | None) -> None:
    """With a pattern every model that matches; without one our own, and the families of timm's."""
    if pattern is not None:
        names = list_models(pattern)
        if not names:
            raise UserError(
                f"no model matches {pattern!r}",
                why="a pattern is a part of a name, or a glob that fits the whole name",
                remedy=nearest(pattern.strip("*?"), list_models()),
            )
        _print_costs(console, names, size)
        return
    index = model_index()
    _print_costs(console, index.ours, size)
    _print_families(console, Counter(map(_family, index.theirs)))


def _print_costs(console: Console, names: Iterable[str], size: int | None) -> None:
    """Print a line for each model when it is counted."""
    names = list(names)
    if size is not None and len(names) > MANY and console.is_terminal:
        console.print(Text(f"{len(names):,} models; each is counted once for this size", style="dim"))
    width = max(map(len, names))
    _print_row(console, _TITLES, width, "bold")
    for name, cost in zip(names, costs(names, size), strict=True):
        _print_row(console, (name, *_numbers(cost)), width)
        console.file.flush()


def _print_row(console: Console, cells: tuple[str, ...], width: int, style: str = "") -> None:
    if not console.is_terminal:
        print_line(console, tab_separated(cells))
        return
    name, *numbers = cells
    columns = [f"{number:>{len(title)}}" for number, title in zip(numbers, _TITLES[1:], strict=True)]
    console.print(Text("  ".join([name.ljust(width), *columns]), style=style), soft_wrap=True)


def _numbers(cost: ModelCost) -> tuple[str, str, str]:
    """A dash if it cannot be counted."""
    return (
        _short(cost.params, 1e6),
        _short(cost.macs, 1e9),
        str(cost.image_size) if cost.image_size is not None else "-",
    )


def _short(count: int | None, unit: float) -> str:
    if count is None:
        return "-"
    return f"{count / unit:.2f}" if count >= 0.1 * unit else f"{count / unit:.2g}"


def _family(name: str) -> str:
    """`resnet50d` → `resnet`: what comes before the first digit or underscore."""
    matched = re.match(r"[^\d_]+", name)
    return matched[0] if matched else name


def _print_families(console: Console, families: Counter[str]) -> None:
    if not console.is_terminal:
        for family, count in sorted(families.items()):
            print_line(console, tab_separated((f"{family}*", f"{count} of timm's models")))
        return
    console.print(Text(f"\ntimm's {families.total():,} models, by what their names begin with", style="bold"))
    cells = [Text.assemble(family, (f" {count}", "dim")) for family, count in sorted(families.items())]
    console.print(Columns(cells, padding=(0, 2), column_first=True))
    console.print(
        Text("\n`phalanx models 'resnet*'` lists a family with its costs, `--size 160` at another image size")
    )
