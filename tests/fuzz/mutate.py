"""Damage to files and values: strategies that begin with something valid, and change it as an attacker would."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

# Lengths, counts and offsets that parsers trust: none, one, just around a power of two, and absurd ones.
EDGES = [0, 1, 2, 3, 4, 7, 8, 9, 255, 256, 511, 512, 513, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31]
EDGES += [(1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
TEXTS = [
    b"0",
    b"-1",
    b"1e400",
    b"nan",
    b"inf",
    b"9" * 30,
    b"9" * 5000,
    b"../",
    b"/etc/passwd",
    b"\0",
    b"\xff\xfe",
    b"\n",
]
TEXTS += [b"{" * 50, b"[" * 50, b'"', b"%s%n", b"\xed\xa0\x80", b"\x1b[31m", b"[/bold]", b"a" * 4096, b"*" * 20, b"&a"]


class _Contents(tuple[bytes, ...]):
    def __repr__(self) -> str:  # hypothesis shows it in every message
        return f"{len(self)} contents"


def damaged(contents: Sequence[bytes], repair: Callable[[bytes], bytes] | None = None) -> st.SearchStrategy[bytes]:
    """One of these contents after a few changes; perhaps with its checksums `repair`ed, so that readers get further."""
    return _damaged(_Contents(contents), repair)


@st.composite
def _damaged(draw: st.DrawFn, contents: _Contents, repair: Callable[[bytes], bytes] | None) -> bytes:
    data = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(0, 4))):
        data = draw(st.sampled_from(_CHANGES))(draw, data, contents)
    if repair is not None and draw(st.integers(0, 3)):
        return repair(bytes(data))
    return bytes(data)


def _place(draw: st.DrawFn, data: bytearray) -> int:
    """A position; headers at the beginning and directories at the end are hit more often."""
    last = max(0, len(data) - 1)
    low, high = [(0, min(last, 600)), (max(0, last - 200), last), (0, last)][draw(st.integers(0, 2))]
    return draw(st.integers(low, high))


def _flip(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    if data:
        data[_place(draw, data)] ^= 1 << draw(st.integers(0, 7))
    return data


def _set(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    if data:
        data[_place(draw, data)] = draw(st.integers(0, 255))
    return data


def _number(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    """Overwrite an aligned or unaligned number by one at an edge."""
    width, order = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from(["little", "big"]))
    place = _place(draw, data)
    place -= place % width if draw(st.booleans()) else 0
    value = draw(st.sampled_from(EDGES)) % (1 << 8 * width)
    data[place : place + width] = value.to_bytes(width, order)  # type: ignore[arg-type]
    return data


def _real(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    place, form = _place(draw, data), draw(st.sampled_from(["<f", "<d", ">d"]))
    value = struct.pack(form, draw(st.sampled_from([float("nan"), float("inf"), -1.0, 0.5, 3e38])))
    data[place : place + len(value)] = value
    return data


def _text(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    place, text = _place(draw, data), draw(st.sampled_from(TEXTS))
    data[place : place + (len(text) if draw(st.booleans()) else 0)] = text
    return data


def _cut(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    return data[: _place(draw, data)]


def _remove(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    place = _place(draw, data)
    del data[place : place + draw(st.integers(1, 40) | st.just(512))]
    return data


def _repeat(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    place = _place(draw, data)
    part = data[place : place + draw(st.integers(1, 600))]
    return data[:place] + part * draw(st.integers(1, 3)) + data[place:]


def _splice(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    other = bytearray(draw(st.sampled_from(contents)))
    return data[: _place(draw, data)] + other[_place(draw, other) :]


def _append(draw: st.DrawFn, data: bytearray, contents: Sequence[bytes]) -> bytearray:
    return data + draw(st.binary(max_size=600))


Change = Callable[[st.DrawFn, bytearray, Sequence[bytes]], bytearray]
_CHANGES: list[Change] = [_flip, _set, _number, _number, _real, _text, _cut, _remove, _repeat, _splice, _append]


_WORDS = ["", "a", "../x", "/etc/passwd", "\0", "\ud800", "é", "x" * 5000, "nan", "step", "[/b]", "a.b", "1", "%s", "~"]
NUMBERS = st.sampled_from([0, -1, 1, 2, 1.5, 1e308, float("nan"), float("inf"), 10**30, 10**400, 1 << 63, True])
LEAVES = st.none() | st.booleans() | NUMBERS | st.sampled_from(_WORDS) | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=3)
)


@st.composite
def wrong(draw: st.DrawFn, tree: Any, most: int = 3) -> Any:
    """A JSON value with other values, or none, in a few of its places."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw(st.integers(0, most))):
        tree = _wronged(draw, tree)
    return tree


def _wronged(draw: st.DrawFn, tree: Any) -> Any:
    if not isinstance(tree, (dict, list)) or not tree or draw(st.integers(0, 7)) == 0:
        return draw(VALUES)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = draw(st.sampled_from(keys))
    if draw(st.integers(0, 5)) == 0:
        del tree[key]
    else:
        tree[key] = _wronged(draw, tree[key])
    return tree
