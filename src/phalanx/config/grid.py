"""Grids of settings for sweeps: `optim.lr=0.1,0.2,0.4` is one key with three values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from phalanx.config.resolve import Layer, flatten, nest, parse_override
from phalanx.errors import UserError

Grid = dict[str, list[Any]]
_OPEN, _CLOSE = "[{(", "]})"
# A sweep has a folder, seeds and code of its own, and its runs are single ones.
_NOT_SWEPT = {
    "data.folds": "a sweep is of single runs; `phalanx train --folds` cross-validates one of them afterwards",
    "data.fold": "all runs of a sweep are judged on the same images; choose a fold for all: data.folds=5 data.fold=1",
    "name": "it names folders, and a sweep numbers those of its runs",
}


def parse_grid(words: Sequence[str]) -> tuple[list[str], Grid]:
    """(settings with one value, keys with several), from words such as `optim.lr=0.1,0.2`."""
    plain: list[str] = []
    grid: Grid = {}
    for word in words:
        key, equals, text = word.partition("=")
        key, parts = key.strip(), split_values(text)
        if equals and key and any(not part.strip() for part in parts):
            raise UserError(
                f"{word!r} has an empty value",
                why="values of a sweep are separated by commas",
                remedy=f"{key}=A,B,C; a setting that is to be off is {key}=null",
            )
        if len(parts) < 2:
            plain.append(word)
        elif key in grid:
            raise UserError(
                f"{key} is given twice", why="a key has one list of values", remedy=f"write all of them: {key}=A,B,C"
            )
        else:
            grid[key] = [flatten(parse_override(f"{key}={part}").values).get(key) for part in parts]
    return plain, grid


def split_values(text: str) -> list[str]:
    """The parts between commas that are inside neither brackets nor quotes: `[1,2],[3]` has two."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in _OPEN) - (letter in _CLOSE) if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def check_grid(grid: Mapping[str, Sequence[Any]], seeds: int) -> None:
    """Refuse what cannot be a sweep, whatever the recipe."""
    for key, values in grid.items():
        if not values:
            raise UserError(f"{key} has no values", why="each key of a sweep needs one or more", remedy=f"{key}=A,B,C")
    check_keys(grid)
    if seeds < 1:
        raise UserError(f"--seeds cannot be {seeds}", why="each combination needs one run", remedy="--seeds 3")
    if seeds > 1 and "train.seed" in grid:
        raise UserError(
            "train.seed does not go together with --seeds",
            why="both say which seeds are run",
            remedy="leave one of them out",
        )
    if seeds == 1 and all(len(values) < 2 for values in grid.values()):
        raise UserError(
            "there is nothing to sweep",
            why="no setting has several values, and there is one seed",
            remedy="phalanx sweep digits optim.lr=0.1,0.2,0.4 --seeds 3",
        )


def check_keys(keys: Iterable[str]) -> None:
    """Refuse settings that cannot differ between the runs of a sweep."""
    for key in keys:
        if key in _NOT_SWEPT or key.startswith("code."):
            raise UserError(
                f"{key} cannot be swept", why=_NOT_SWEPT.get(key, "it is written by phalanx"), remedy="leave it out"
            )


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values; the last key changes fastest."""
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def value_layers(values: Mapping[str, Any]) -> list[Layer]:
    """A combination as layers of settings."""
    return [Layer(f"{key}={shown(value)}", nest(key, value)) for key, value in values.items()]


def shown(value: Any) -> str:
    """A value as it is typed."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
