"""The members of a tar archive, found by going from header to header: ustar, GNU long names and sizes, pax."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from phalanx.data.sources.window import Damaged, Window

BLOCK = 512
ZEROS = bytes(BLOCK)
# name, (mode, owner, group), size, (time), checksum, type, (link), magic, (owner's names, device), prefix
HEADER = struct.Struct("<100s24x12s12x8sc100x8s80x155s12x")
FILES = b"0\x007"
GNU_LONG_NAME, GNU_LONG_LINK = b"L", b"K"
PAX, PAX_FOR_ALL = b"x", b"g"
FOLDER, SPARSE = b"5", b"S"
LARGEST_HEADER = 1 << 20  # of the data of a long name or of pax records

Bytes = Callable[[int, int, str], bytes]  # (offset, count, what for) → bytes; raises Damaged if there are fewer


@dataclass(slots=True)
class Member:
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


def members(window: Window) -> Iterator[Member]:
    """All members up to the file's end. Concatenated archives are read as one."""
    offset, ended = 0, False
    while offset < window.size:
        if window.size - offset < BLOCK and ended:
            break  # padding
        place = window.at(offset, BLOCK, "a member's header")
        if window.buffer.startswith(ZEROS, place):
            offset, ended = offset + BLOCK, True
            continue
        member = member_at(window.bytes_at, offset)
        if member.offset + member.size > window.size:
            left = max(0, window.size - member.offset)
            raise Damaged(offset, f"the file ends {left:,} bytes into the {member.size:,} of {member.shown_name}")
        yield member
        offset, ended = member.end, False
    if not ended:
        raise Damaged(window.size, "the archive has no end marker: it was cut off between two members")


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
        kind = SPARSE if any(key.startswith(b"GNU.sparse") for key in pax) else kind
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
    wanted, found = _number(checksum), sum(block) - sum(block[148:156]) + 8 * 0x20
    if wanted == found:
        return True
    # Old writers added signed bytes.
    return wanted == found - 256 * sum(byte >= 0x80 for byte in block[:148] + block[156:])


def _pax_records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Records `length key=value\\n`, the length counting all of it."""
    found, place = {}, 0
    while place < len(data) and data[place] != 0:
        digits, blank, _ = data[place : place + 20].partition(b" ")
        end = place + int(digits) if blank and digits.isdigit() else place
        key, equals, value = data[place + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or end > len(data):
            raise Damaged(offset + place, "a pax record cannot be read")
        found[key] = value
        place = end
    return found


def _pax_size(text: bytes, offset: int) -> int:
    if not text.isdigit() or len(text) > 18:
        raise Damaged(offset, f"a pax record has the size {text[:20]!r}")
    return int(text)
