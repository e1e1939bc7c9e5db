"""Checks records of events.jsonl when they are read: whoever uses one can rely on its fields and their types."""

import functools
import math
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from phalanx.config.text import read_json
from phalanx.runs.events import Event, Record

_LARGEST = 1 << 62  # of a whole number: what is larger cannot be drawn or divided
_COUNTS = ("steps_per_epoch", "samples_per_step")  # others are divided by these
_SPAN = 3  # numbers of an entry of `used`


def read_record(line: str | bytes) -> Record:
    """The event in a line. Raises ValueError."""
    record = read_json(line)
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise ValueError("not an event")
    for name, hint, needed in (("t", float, True), ("step", int, False), *_fields(record["kind"])):
        if name not in record:
            if needed:
                raise ValueError(f"it has no {name!r}")
        elif not _fits(record[name], hint) or (name in _COUNTS and record[name] < 1):
            raise ValueError(f"its {name} cannot be {repr(record[name])[:60]}")
    if record["t"] is None or any(len(span) != _SPAN for span in record.get("used", ())):
        raise ValueError("its time or its samples are missing")
    return record


@functools.cache
def _fields(kind: str) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type, whether it must be there) of the fields of a kind; none of a kind of a later version."""
    found = next((each for each in Event.__subclasses__() if each.kind == kind), Event)
    hints = get_type_hints(found)
    return tuple(
        (each.name, hints[each.name], each.default is MISSING and each.default_factory is MISSING)
        for each in fields(found)
    )


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is UnionType:
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(each, get_args(hint)[0]) for each in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(_fits(each, get_args(hint)[1]) for each in value.values())
    if hint is float:  # a number that was not finite was written as null
        return value is None or _fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    return (
        hint is Any
        or (hint in (None, NoneType) and value is None)
        or (isinstance(hint, type) and isinstance(value, hint))
    )
