"""The members of a zip file, from the directory at its end: zip64, names in UTF-8 or cp437, data before the archive."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from phalanx.data.sources.window import Damaged, read_at

END = struct.Struct("<4s4H2LH")  # signature, disks, members, size and place of the directory, length of the comment
END_64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR_64 = struct.Struct("<4sLQL")
# signature, (version), system, (version), flags, method, (time), checksum, packed size, size, lengths of name, extra
# and comment, disk, (attributes), place of the local header
ENTRY = struct.Struct("<4sxB2x2H4x3L4H6xL")
LONGEST_COMMENT = 0xFFFF
BIG, BIG_SHORT = 0xFFFFFFFF, 0xFFFF  # in place of numbers that only zip64's extra field holds

STORED, DEFLATED = 0, 8
METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "zstd", 95: "xz", 98: "PPMd", 99: "AES encryption"}
ENCRYPTED, UTF_8 = 1 << 0, 1 << 11
DOS_SYSTEMS = (0, 10, 11)  # whose programs wrote backslashes between folders
ZIP_64, UNICODE_PATH = 0x0001, 0x7075  # kinds of extra fields


class ZipMember(NamedTuple):
    """A file in an archive. Its data follow its local header, which repeats its name."""

    name: str
    header: int  # where its local header begins in the file
    packed: int  # bytes in the archive
    size: int
    crc: int
    method: int
    flags: int
    name_bytes: int  # length of its name as it is stored


class Directory(NamedTuple):
    """Where the directory of an archive is, and how far everything is shifted by data before the archive."""

    offset: int
    size: int
    num_members: int
    shift: int


def is_zip(start: bytes) -> bool:
    """Whether the beginning of a file is that of a zip file."""
    return start.startswith((b"PK\3\4", b"PK\5\6"))


def zip_members(descriptor: int, file_size: int) -> Iterator[ZipMember]:
    """The files of an archive in the order of its directory, without folders. Raises Damaged."""
    directory = _directory(descriptor, file_size)
    data = read_at(descriptor, directory.offset, directory.size)
    if len(data) < directory.size:
        raise Damaged(directory.offset, "the file became shorter while it was read")
    place = 0
    for number in range(directory.num_members):
        if place + ENTRY.size > len(data):
            raise Damaged(
                directory.offset + place, f"its directory ends after {number:,} of {directory.num_members:,} files"
            )
        fields = ENTRY.unpack_from(data, place)
        signature, system, flags, method, crc, packed, size, *lengths, disk, header = fields
        name_bytes, extra_bytes, comment_bytes = lengths
        if signature != b"PK\1\2":
            raise Damaged(directory.offset + place, f"entry {number:,} of its directory does not begin as one")
        begin = place + ENTRY.size
        place = begin + name_bytes + extra_bytes + comment_bytes
        if place > len(data):
            raise Damaged(directory.offset + begin, f"entry {number:,} of its directory is cut off")
        raw = data[begin : begin + name_bytes]
        extra = data[begin + name_bytes : begin + name_bytes + extra_bytes] if extra_bytes else b""
        if BIG in (packed, size, header) or disk == BIG_SHORT:
            size, packed, header = _large(extra, size, packed, header, directory.offset + begin)
        if raw.endswith((b"/", b"\\")) and not size:
            continue  # a folder
        header += directory.shift
        if header + packed > directory.offset:
            raise Damaged(directory.offset + begin, f"entry {number:,} of its directory is outside of the file")
        yield ZipMember(_name(raw, extra, flags, system), header, packed, size, crc, method, flags, name_bytes)


def _directory(descriptor: int, file_size: int) -> Directory:
    tail_size = min(file_size, END.size + LONGEST_COMMENT)
    tail_start = file_size - tail_size
    tail = read_at(descriptor, tail_start, tail_size)
    place = _end_record(tail)
    if place is None:
        raise Damaged(file_size, "the directory at its end is missing: the file was cut off, or is not a zip file")
    _, disk, first_disk, _, count, size, offset, _ = END.unpack_from(tail, place)
    end = tail_start + place
    locator_at = end - LOCATOR_64.size
    locator = read_at(descriptor, max(0, locator_at), LOCATOR_64.size)
    if locator_at >= 0 and locator.startswith(b"PK\6\7"):
        end, (disk, first_disk, count, size, offset) = _end_64(descriptor, locator, locator_at)
    elif disk == BIG_SHORT:
        disk = first_disk = 0
    if disk or first_disk:
        raise Damaged(end, "it is one part of an archive that was split; join the parts first (zip -s 0 IN --out OUT)")
    shift = end - size - offset
    if shift < 0 or size < count * ENTRY.size:
        raise Damaged(end, f"a directory of {count:,} files in {size:,} bytes at {offset:,} does not fit into the file")
    return Directory(end - size, size, count, shift)


def _end_record(tail: bytes) -> int | None:
    """Where the end record begins: the last one whose comment reaches to the end of the file, or the last one."""
    found, place = None, tail.rfind(b"PK\5\6")
    while place >= 0:
        if place + END.size <= len(tail):
            found = place if found is None else found
            if place + END.size + END.unpack_from(tail, place)[-1] == len(tail):
                return place
        place = tail.rfind(b"PK\5\6", 0, place)
    return found


def _end_64(descriptor: int, locator: bytes, locator_at: int) -> tuple[int, tuple[int, int, int, int, int]]:
    """(where zip64's end record is, (disk, first disk, members, size and place of the directory))."""
    _, _, offset, _ = LOCATOR_64.unpack(locator)
    # Data before the archive shifts it; the record is then right before its locator.
    for place in (offset, locator_at - END_64.size):
        record = read_at(descriptor, place, END_64.size) if 0 <= place < locator_at else b""
        if len(record) == END_64.size and record.startswith(b"PK\6\6"):
            *_, disk, first_disk, _, count, size, start = END_64.unpack(record)
            return place, (disk, first_disk, count, size, start)
    raise Damaged(locator_at, f"its zip64 end record should be at {offset:,}, and is not")


def _large(extra: bytes, size: int, packed: int, header: int, offset: int) -> tuple[int, int, int]:
    """(size, packed size, local header), where those of 2³² and more are in zip64's extra field."""
    values, found = _extra_field(extra, ZIP_64), []
    for number in (size, packed, header):
        if number != BIG:
            found.append(number)
            continue
        if len(values) < 8:
            raise Damaged(offset, "an entry of its directory lacks the zip64 sizes that it announces")
        found.append(int.from_bytes(values[:8], "little"))
        values = values[8:]
    return found[0], found[1], found[2]


def _extra_field(extra: bytes, kind: int) -> bytes:
    """The extra field of a kind; empty where there is none."""
    place = 0
    while place + 4 <= len(extra):
        found, length = struct.unpack_from("<2H", extra, place)
        if found == kind:
            return extra[place + 4 : place + 4 + length]
        place += 4 + length
    return b""


def _name(raw: bytes, extra: bytes, flags: int, system: int) -> str:
    """A member's name. Bytes that are UTF-8 are taken as such: macOS writes it without setting the flag."""
    if raw.isascii():
        name = raw.decode("ascii")
    else:
        unicode_path = _extra_field(extra, UNICODE_PATH)[5:]  # after a version and a checksum
        try:
            name = (unicode_path or raw).decode()
        except UnicodeDecodeError:
            name = raw.decode("utf-8", "replace") if flags & UTF_8 else raw.decode("cp437")
    return name.replace("\\", "/") if system in DOS_SYSTEMS and "\\" in name and "/" not in name else name
