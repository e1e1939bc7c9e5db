"""Ranges of settings for a search: `optim.lr=0.01..1:log` is every number from 0.01 to 1, by its logarithm."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phalanx.errors import UserError

_NUMBER = r"[-+]?(?:\d+\.\d+|\d+\.(?!\.)|\.\d+|\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\.\.({_NUMBER})(?::(\w+))?\s*")


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included: whole ones if both are written as such."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}" + ":log" * self.log


Choices = list[Any]
Space = dict[str, Range | Choices]


def parse_range(key: str, text: str) -> Range | None:
    """The range that a text describes. None if it describes none."""
    if ".." not in text:
        return None
    found = _RANGE.fullmatch(text)
    if found is None:
        if re.match(rf"\s*{_NUMBER}\s*\.\.", text):
            raise _wrong(key, text, "a range has two numbers and perhaps a scale")
        return None  # such as ../photos
    low, high, scale = found.groups()
    if scale not in (None, "log"):
        raise _wrong(key, text, f"the scale {scale!r} is not known; log is")
    made = Range(float(low), float(high), scale == "log", _is_whole(low) and _is_whole(high))
    if made.low >= made.high:
        raise _wrong(key, text, "the first number has to be the smaller one")
    if made.log and made.low <= 0:
        raise _wrong(key, text, "only numbers above 0 have a logarithm")
    return made


def split_ranges(words: Sequence[str]) -> tuple[list[str], dict[str, Range]]:
    """(the other words, the ranges by key), from words such as `optim.lr=0.01..1:log`."""
    others: list[str] = []
    ranges: dict[str, Range] = {}
    for word in words:
        key, _, text = word.partition("=")
        found = parse_range(key.strip(), text)
        if found is None:
            others.append(word)
        else:
            ranges[key.strip()] = found
    return others, ranges


def space_to_data(space: Mapping[str, Range | Choices]) -> dict[str, Any]:
    """As JSON."""
    return {key: asdict(one) if isinstance(one, Range) else {"values": one} for key, one in space.items()}


def space_from_data(data: Mapping[str, Any]) -> Space:
    """What `space_to_data` wrote."""
    return {key: list(one["values"]) if "values" in one else Range(**one) for key, one in data.items()}


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d+", text) is not None


def _wrong(key: str, text: str, why: str) -> UserError:
    return UserError(f"{key}={text} is not a range", why=why, remedy=f"such as {key}=0.01..1:log or {key}=1..8")
