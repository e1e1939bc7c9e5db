"""Checks records of events.jsonl when they are read: whoever uses one can rely on its fields and their types."""

import functools
import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from phalanx.config.text import read_json
from phalanx.runs.events import Event, Record

_LARGEST = 1 << 62  # of a whole number: what is larger cannot be drawn or divided
_COUNTS = ("steps_per_epoch", "samples_per_step")  # others are divided by these
_SPAN = 3  # numbers of an entry of `used`
Test = Callable[[Any], bool]


def read_record(line: str | bytes) -> Record:
    """The event in a line. Raises ValueError."""
    return check_record(read_json(line))


def check_record(record: Any) -> Record:
    """The record, if it is an event. Raises ValueError."""
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise ValueError("not an event")
    for name, fits, needed in _fields(record["kind"]):
        if name not in record:
            if needed:
                raise ValueError(f"it has no {name!r}")
        elif not fits(record[name]) or (name in _COUNTS and record[name] < 1):
            raise ValueError(f"its {name} cannot be {repr(record[name])[:60]}")
    if record["t"] is None or any(len(span) != _SPAN for span in record.get("used", ())):
        raise ValueError("its time or its samples are missing")
    checked: Record = record
    return checked


@functools.lru_cache(256)
def _fields(kind: str) -> tuple[tuple[str, Test, bool], ...]:
    """(name, test, whether it must be there) of the fields of a kind; of a kind of a later version, the common ones."""
    found = next((each for each in Event.__subclasses__() if each.kind == kind), Event)
    hints = get_type_hints(found)
    own = [
        (each.name, hints[each.name], each.default is MISSING and each.default_factory is MISSING)
        for each in fields(found)
    ]
    common = [("t", float, True), ("step", int, False)]
    return tuple((name, _test_of(hint), needed) for name, hint, needed in (*common, *own))


@functools.cache
def _test_of(hint: Any) -> Test:
    """Whether a value is of a type. Made once for each type: the events of a long run hold millions of values."""
    origin, inner = get_origin(hint), [_test_of(each) for each in get_args(hint) if each is not Ellipsis]
    if origin is UnionType:
        return lambda value: any(test(value) for test in inner)
    if origin is list:
        return lambda value: isinstance(value, list) and all(map(inner[0], value))
    if origin is dict:
        return lambda value: isinstance(value, dict) and all(map(inner[1], value.values()))
    if hint is float:
        return _is_number
    if hint is int:
        return _is_whole
    if hint is Any:
        return lambda value: True
    if hint in (None, NoneType):
        return lambda value: value is None
    return lambda value: isinstance(hint, type) and isinstance(value, hint)


def _is_number(value: Any) -> bool:
    """A number that was not finite was written as null."""
    return math.isfinite(value) if isinstance(value, float) else value is None or _is_whole(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
