"""Damage to files, drawn from a seeded generator: bits, bytes, pieces, and the segments of a JPEG."""

from collections.abc import Callable, Sequence
from random import Random

Damage = Callable[[Random, bytearray, Sequence[bytes]], bytearray]

TELLING = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 192, 196, 217, 218, 221, 254, 255)  # bytes
JPEG_END = b"\xff\xd9"


def mutated(random: Random, data: bytes, others: Sequence[bytes], most: int = 4) -> bytes:
    """The file with one to `most` kinds of damage; `others` lend their bytes."""
    changed = bytearray(data)
    for _ in range(random.randint(1, most)):
        changed = random.choice(DAMAGES)(random, changed, others) or bytearray(data)
    # Without an end a JPEG is refused at first sight.
    return bytes(changed + JPEG_END if random.random() < 0.7 else changed)


def _place(random: Random, data: bytearray) -> int:
    """Anywhere, but often in the first bytes, where headers are."""
    end = len(data) if random.random() < 0.7 else min(len(data), 700)
    return random.randrange(end) if end else 0


def _flip_bits(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    for _ in range(random.choice((1, 1, 2, 8))):
        if data:
            data[_place(random, data)] ^= 1 << random.randrange(8)
    return data


def _set_bytes(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    for _ in range(random.choice((1, 1, 2, 8))):
        if data:
            data[_place(random, data)] = random.choice(TELLING) if random.random() < 0.5 else random.randrange(256)
    return data


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    return data[: random.randrange(len(data) + 1)]


def _erase(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    at = _place(random, data)
    del data[at : at + random.choice((1, 2, 3, 8, 64, 500))]
    return data


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    at, length = _place(random, data), random.choice((1, 2, 8, 64, 500))
    data[at:at] = data[at : at + length]
    return data


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    at, length = _place(random, data), random.choice((2, 8, 64))
    data[at : at + length] = random.randbytes(length)
    return data


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    """Goes on as another file from somewhere on."""
    other = bytearray(random.choice(others))
    return data[: _place(random, data)] + other[_place(random, other) :]


def _insert_marker(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    at = _place(random, data)
    data[at:at] = bytes((0xFF, random.choice((*range(0xD0, 0xE2), *TELLING))))
    return data


def segments(data: bytes | bytearray) -> list[slice]:
    """Where the segments of a JPEG up to its first scan are."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(slice(at, end))
        at = end
    return found


def _move_segment(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    """A segment of this file or of another one: repeated, moved or left out."""
    lender = data if random.random() < 0.5 else random.choice(others)
    have, lent = segments(data), segments(lender)
    if not have or not lent:
        return data
    piece, place = bytes(lender[random.choice(lent)]), random.choice(have)
    if random.random() < 0.3:
        piece = b""
    data[place if random.random() < 0.5 else slice(place.start, place.start)] = piece
    return data


def _edit_segment(random: Random, data: bytearray, others: Sequence[bytes]) -> bytearray:
    """A byte among the first of a segment: marker, length, table number, sampling."""
    have = segments(data)
    if have:
        segment = random.choice(have)
        at = min(segment.start + random.randrange(1, 20), len(data) - 1)
        data[at] = random.choice(TELLING) if random.random() < 0.6 else random.randrange(256)
    return data


DAMAGES: tuple[Damage, ...] = (
    *(_flip_bits, _set_bytes, _cut, _erase, _repeat, _overwrite, _splice),
    *(_insert_marker, _move_segment, _edit_segment),
)
