"""tf.train.Example, read from its protobuf encoding: named features, each a list of bytes, floats or integers.

A message is a row of fields; a field is a number that holds its tag and its wire type, then its value. Features stand
in Example.features (1) → Features.feature (1), a map whose entries have a key (1) and a value (2); the value's tag says
what it lists. Nothing is read beyond the message that it belongs to.
"""

import ctypes
import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.native.build import find_library

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "integers"}


class BadExample(Exception):
    """These bytes are no tf.train.Example. The message says why."""


@dataclass(slots=True)
class Feature:
    """The place of a feature's value in the message."""

    start: int
    end: int


def features_of(data: bytes, start: int, end: int) -> dict[str, Feature]:
    """The features of the Example in data[start:end], by name. Values are left where they are."""
    found: dict[str, Feature] = {}
    for begin, stop in _messages(data, start, end, 1):
        for entry, entry_end in _messages(data, begin, stop, 1):
            key = value = None
            place = entry
            while place < entry_end:
                tag, wire, place = _tag(data, place, entry_end)
                if wire == LENGTH:
                    size, place = _varint(data, place, entry_end)
                    if place + size > entry_end:
                        raise BadExample("a feature is longer than its message")
                    if tag == 1:
                        key = data[place : place + size].decode(errors="replace")
                    elif tag == 2:
                        value = Feature(place, place + size)
                    place += size
                else:
                    place = _skip(data, place, entry_end, wire)
            if key is not None and value is not None:
                found[key] = value
    return found


def find_features(data: bytes, start: int, end: int, names: tuple[str, ...]) -> list[Feature | None]:
    """The features of these names: by native/example.c, for a photograph's record has a dozen more of them."""
    native = _native()
    if native is not None:
        places = (ctypes.c_int64 * (2 * len(names)))()
        if native(data, start, end, _terminated(names), len(names), places):
            return [Feature(*places[2 * i : 2 * i + 2]) if places[2 * i] else None for i in range(len(names))]
    found = features_of(data, start, end)  # and if it is malformed, this says how
    return [found.get(name) for name in names]


@functools.cache
def _native() -> Callable[..., int] | None:
    library = find_library("example", "Python").handle
    if library is None:
        return None
    find = library.example_find
    find.restype = ctypes.c_int
    size, names = ctypes.c_size_t, ctypes.c_char_p
    find.argtypes = (ctypes.c_char_p, size, size, names, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
    return find


@functools.cache
def _terminated(names: tuple[str, ...]) -> bytes:
    return b"".join(name.encode() + b"\0" for name in names)


def kind_of(data: bytes, feature: Feature) -> str:
    """What a feature lists, for messages: bytes, floats, integers, or nothing."""
    if feature.start == feature.end:
        return "nothing"
    return KINDS.get(_tag(data, feature.start, feature.end)[0], "something unknown")


def bytes_of(data: bytes, feature: Feature) -> list[bytes]:
    """The values of a feature that lists bytes; none of any other."""
    values = []
    for begin, stop in _messages(data, feature.start, feature.end, BYTES_LIST):
        values += [data[first:last] for first, last in _messages(data, begin, stop, 1)]
    return values


def numbers_of(data: bytes, feature: Feature) -> list[float]:
    """The values of a feature that lists integers or floats; none of any other."""
    values: list[float] = []
    for begin, stop in _messages(data, feature.start, feature.end, INT64_LIST):
        values += _integers(data, begin, stop)
    for begin, stop in _messages(data, feature.start, feature.end, FLOAT_LIST):
        values += _floats(data, begin, stop)
    return values


def _integers(data: bytes, place: int, end: int) -> list[int]:
    """Integers, packed into one field or one a field."""
    values = []
    while place < end:
        tag, wire, place = _tag(data, place, end)
        if tag == 1 and wire == VARINT:
            value, place = _varint(data, place, end)
            values.append(_signed(value))
        elif tag == 1 and wire == LENGTH:
            size, place = _varint(data, place, end)
            stop = place + size
            if stop > end:
                raise BadExample("a list of integers is longer than its message")
            while place < stop:
                value, place = _varint(data, place, stop)
                values.append(_signed(value))
        else:
            place = _skip(data, place, end, wire)
    return values


def _floats(data: bytes, place: int, end: int) -> list[float]:
    """Floats, packed into one field or one a field."""
    values: list[float] = []
    while place < end:
        tag, wire, place = _tag(data, place, end)
        begin, place = place, _skip(data, place, end, wire)
        if tag == 1 and wire == FOUR_BYTES:
            values += struct.unpack_from("<f", data, begin)
        elif tag == 1 and wire == LENGTH:
            size, begin = _varint(data, begin, end)
            if size % 4:
                raise BadExample("a list of floats has a length that is no multiple of 4")
            values += struct.unpack_from(f"<{size // 4}f", data, begin)
    return values


def _messages(data: bytes, place: int, end: int, wanted: int) -> list[tuple[int, int]]:
    """The places of the fields with a length and the wanted tag."""
    found = []
    while place < end:
        tag, wire, place = _tag(data, place, end)
        if wire == LENGTH:
            size, place = _varint(data, place, end)
            if place + size > end:
                raise BadExample("a field is longer than its message")
            if tag == wanted:
                found.append((place, place + size))
            place += size
        else:
            place = _skip(data, place, end, wire)
    return found


def _tag(data: bytes, place: int, end: int) -> tuple[int, int, int]:
    key, place = _varint(data, place, end)
    if key < 8:
        raise BadExample("a field has the number 0")
    return key >> 3, key & 7, place


def _skip(data: bytes, place: int, end: int, wire: int) -> int:
    """Where the next field begins."""
    if wire == VARINT:
        place = _varint(data, place, end)[1]
    elif wire == EIGHT_BYTES:
        place += 8
    elif wire == FOUR_BYTES:
        place += 4
    elif wire == LENGTH:
        size, place = _varint(data, place, end)
        place += size
    else:
        raise BadExample(f"a field has the unknown wire type {wire}")
    if place > end:
        raise BadExample("a field is longer than its message")
    return place


def _varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    """(number, where it ends): seven bits a byte, the lowest first; the eighth says that more follow."""
    if place >= end:
        raise BadExample("it ends within a number")
    byte = data[place]
    if byte < 0x80:
        return byte, place + 1
    value, shift = byte & 0x7F, 7
    for further in range(place + 1, min(end, place + 10)):
        byte = data[further]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, further + 1
        shift += 7
    raise BadExample("a number does not end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
