"""The members of a tar archive, found by going from header to header: ustar, GNU long names and sizes, pax."""

import functools
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from phalanx.data.sources.shards.tar_headers import BLANK, BLOCK, KIND, PAX, PlainHeaders, find_plain_headers
from phalanx.data.sources.window import Damaged, Window

ZEROS = bytes(BLOCK)
# name, (mode, owner, group), size, (time), checksum, type, (link), magic, (owner's names, device), prefix
HEADER = struct.Struct("<100s24x12s12x8sc100x8s80x155s12x")
MAGIC, PREFIX = 257, 345
ONE_BYTE = [bytes([value]) for value in range(256)]
GNU_LONG_NAME, GNU_LONG_LINK = b"L", b"K"
PAX_FOR_ALL = b"g"
SPARSE, SPARSE_PAX = b"S", b"GNU.sparse"
LARGEST_HEADER = 1 << 20  # of the data of a long name or of pax records

Bytes = Callable[[int, int, str], bytes]  # (offset, count, what for) → bytes; raises Damaged if there are fewer


class Member(NamedTuple):
    """A file in an archive. Its own header is the block before its data; others may come before that one."""

    start: int  # of its first header
    offset: int  # of its data
    size: int
    name: bytes
    kind: bytes

    @property
    def shown_name(self) -> str:
        return self.name[-200:].decode(errors="replace")

    @property
    def end(self) -> int:
        return self.offset + self.size + -self.size % BLOCK


# A Member of a tuple of its fields. `Member(*fields)` is a Python function, which takes three times as long.
_member: Callable[[tuple[int, int, int, bytes, bytes]], Member] = functools.partial(tuple.__new__, Member)


def members(window: Window) -> Iterator[Member]:
    """All members up to the file's end. Concatenated archives are read as one."""
    return itertools.chain.from_iterable(member_runs(window))


def member_runs(window: Window) -> Iterator[list[Member]]:
    """The same, in lists of members that follow one another: as many as the window has read, or one."""
    offset, ended, headers = 0, False, find_plain_headers(b"")
    while offset < window.size:
        if window.size - offset < BLOCK and ended:
            break  # padding
        place = window.at(offset, BLOCK, "a member's header")
        if headers.buffer is not window.buffer:
            headers = find_plain_headers(window.buffer)
        if run := _plain_members(headers, window.start, place, window.size):
            yield run
            offset, ended = run[-1].end, False
            continue
        if window.buffer.startswith(ZEROS, place):
            offset, ended = offset + BLOCK, True
            continue
        member = member_at(window.bytes_at, offset)
        if member.offset + member.size > window.size:
            left = max(0, window.size - member.offset)
            raise Damaged(offset, f"the file ends {left:,} bytes into the {member.size:,} of {member.shown_name}")
        yield [member]
        offset, ended = member.end, False
    if not ended:
        raise Damaged(window.size, "the archive has no end marker: it was cut off between two members")


def _plain_members(headers: PlainHeaders, start: int, place: int, file_size: int) -> list[Member]:
    """The members from a place in a buffer on, which begins at `start` in the file, as long as headers are plain.

    A member that does not fit into the file is left to the caller, as is one that pax records describe.
    """
    firsts, run = _without_pax(headers, headers.run(place // BLOCK))
    if run and start + headers.after[run[-1]] * BLOCK > file_size:
        run.pop()
    if not run:
        return []
    blocks, names = headers.blocks, headers.names(run)
    for number in np.flatnonzero(blocks[run, PREFIX]).tolist():
        block = blocks[run[number]].tobytes()
        names[number] = _name(names[number], block[MAGIC : MAGIC + 8], block[PREFIX : PREFIX + 155])
    begins, offsets = (start + BLOCK * np.array(numbers[: len(run)]) for numbers in (firsts, run))
    kinds = [ONE_BYTE[kind] for kind in blocks[run, KIND].tolist()]
    sizes = headers.sizes[run].tolist()
    return list(map(_member, zip(begins.tolist(), (offsets + BLOCK).tolist(), sizes, names, kinds, strict=True)))


def _without_pax(headers: PlainHeaders, run: list[int]) -> tuple[list[int], list[int]]:
    """(the block of each member's first header, the block of its own one), up to pax records that describe a member.

    Most pax records only have times, which do not matter here.
    """
    if not run or not np.any(headers.blocks[run, KIND] == ord(PAX)):
        return run, run
    firsts, own, first = [], [], -1
    for block in run:
        if headers.buffer[block * BLOCK + KIND] != ord(PAX):
            firsts.append(block if first < 0 else first)
            own.append(block)
            first = -1
        elif _pax_matters(headers, block):
            break
        elif first < 0:
            first = block
    return firsts, own


def _pax_matters(headers: PlainHeaders, block: int) -> bool:
    begin, size = (block + 1) * BLOCK, int(headers.sizes[block])
    if size > LARGEST_HEADER or begin + size > len(headers.buffer):
        return True
    try:
        records = _pax_records(headers.buffer[begin : begin + size], begin)
    except Damaged:
        return True
    return any(key in (b"path", b"size") or key.startswith(SPARSE_PAX) for key in records)


def member_at(read: Bytes, start: int) -> Member:
    """The member whose first header begins there."""
    offset, long_name, pax = start, None, dict[bytes, bytes]()
    while True:
        block = read(offset, BLOCK, "a member's header")
        name, size_field, checksum, kind, magic, prefix = HEADER.unpack(block)
        if not _is_header(block, checksum):
            raise Damaged(offset, "a member's header should be here, but its checksum is wrong")
        size = _number(size_field)
        if size is None:
            raise Damaged(offset, "the size in a member's header is invalid")
        offset += BLOCK
        if kind not in (GNU_LONG_NAME, GNU_LONG_LINK, PAX, PAX_FOR_ALL):
            break
        if size > LARGEST_HEADER:
            raise Damaged(offset, f"a member's name takes {size:,} bytes")
        data = read(offset, size, "a long name")
        if kind == GNU_LONG_NAME:
            long_name = data.rstrip(b"\0")
        elif kind == PAX:
            pax |= _pax_records(data, offset)
        offset += size + -size % BLOCK
    if pax:
        size = _pax_size(pax[b"size"], offset) if b"size" in pax else size
        kind = SPARSE if any(key.startswith(SPARSE_PAX) for key in pax) else kind
    return Member(start, offset, size, pax.get(b"path") or long_name or _name(name, magic, prefix), kind)


def is_tar(start: bytes) -> bool:
    """Whether the beginning of a file is that of an archive: the checksum of the first header is right."""
    if len(start) < BLOCK or start[:BLOCK] == ZEROS:
        return False
    return _is_header(start[:BLOCK], HEADER.unpack_from(start)[2])


def _name(name: bytes, magic: bytes, prefix: bytes) -> bytes:
    name, prefix = name.partition(b"\0")[0], prefix.partition(b"\0")[0]
    # GNU's older magic ("ustar  ") has other fields in the prefix.
    return prefix + b"/" + name if prefix and magic.startswith(b"ustar\0") else name


def _number(field: bytes) -> int | None:
    """Octal digits; or, where the highest bit is set, GNU's binary number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        number = int(field.rstrip(b"\0 "), 8)
    except ValueError:
        return None
    return number if number >= 0 else None


def _is_header(block: bytes, checksum: bytes) -> bool:
    """Whether the checksum is the sum of the bytes, where its own bytes count as blanks."""
    wanted, found = _number(checksum), _sum(block) - _sum(checksum) + len(checksum) * BLANK
    if wanted == found:
        return True
    # Old writers added signed bytes.
    return wanted == found - 256 * sum(byte >= 0x80 for byte in block[:148] + block[156:])


def _sum(data: bytes) -> int:
    """The sum of up to 512 bytes, in a third of the time of `sum`: the lower half of an Adler-32 is the sum and 1.

    That sum is modulo 65,521, more than 256 bytes can add up to.
    """
    low = zlib.adler32(data[:256]) & 0xFFFF
    return low + (zlib.adler32(data[256:]) & 0xFFFF) - 2


def _pax_records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Records `length key=value\\n`, the length counting all of it."""
    found, place = {}, 0
    while place < len(data) and data[place] != 0:
        digits, blank, _ = data[place : place + 20].partition(b" ")
        end = place + int(digits) if blank and digits.isdigit() else place
        key, equals, value = data[place + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or not place < end <= len(data):
            raise Damaged(offset + place, "a pax record cannot be read")
        found[key] = value
        place = end
    return found


def _pax_size(text: bytes, offset: int) -> int:
    if not text.isdigit() or len(text) > 18:
        raise Damaged(offset, f"a pax record has the size {text[:20]!r}")
    return int(text)
