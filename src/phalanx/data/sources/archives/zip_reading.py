"""The content of a zip file's member, read at its offset by any thread: every length and checksum is checked."""

import struct
import zlib
from collections.abc import Callable, Iterator

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.archives.zip_directory import DEFLATED, ENCRYPTED, METHODS, STORED, ZipMember

HEADER_BYTES = 30  # of a local header, before the member's name
LENGTHS = struct.Struct("<2H")  # of the name and of the extra fields, at the header's end
USUAL_EXTRA = 64  # bytes of extra fields that are read together with the header; a directory is longer than that
LARGEST_MEMBER = 1 << 30  # a larger one is no image
PIECE = 1 << 20

Read = Callable[[int, int], bytes]  # (offset, count) → that many bytes; raises OSError or BadImage


def unreadable(member: ZipMember) -> str:
    """Why a member cannot be read at all; empty if it can."""
    if member.flags & ENCRYPTED:
        return "it is encrypted"
    if member.method not in (STORED, DEFLATED):
        return f"it is compressed by {METHODS.get(member.method, f'method {member.method}')}, not by deflate"
    if member.method == STORED and member.packed != member.size:
        return f"it is stored with {member.packed:,} bytes, and announces {member.size:,}"
    return ""


def data_offset(read: Read, member: ZipMember) -> int:
    """Where the data of a member begin: after its local header, whose extra fields may differ from the directory's."""
    return member.header + _header_length(read(member.header, HEADER_BYTES))


def content(read: Read, member: ZipMember) -> bytes:
    """All bytes of a member. Raises BadImage if they are damaged."""
    if member.size > LARGEST_MEMBER:
        raise BadImage(f"it has {member.size:,} bytes, which no image has")
    # Header and data at once, unless the extra fields are unusually long.
    stored = read(member.header, HEADER_BYTES + member.name_bytes + USUAL_EXTRA + member.packed)
    begin = _header_length(stored)
    if begin + member.packed > len(stored):
        stored, begin = read(member.header + begin, member.packed), 0
    packed = stored[begin : begin + member.packed]
    data = packed if member.method == STORED else _inflated(packed, member.size)
    if zlib.crc32(data) != member.crc:
        raise BadImage("its bytes fail their checksum")
    return data


def pieces(read: Read, member: ZipMember) -> Iterator[bytes]:
    """The bytes of a large member, piece by piece; the checksum is compared after the last one. Raises BadImage."""
    offset = data_offset(read, member)
    end, crc, size = offset + member.packed, 0, 0
    inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == DEFLATED else None
    while offset < end:
        packed = read(offset, min(PIECE, end - offset))
        offset += len(packed)
        for piece in [packed] if inflater is None else _inflated_pieces(inflater, packed):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            if size > member.size:
                raise BadImage(f"it unpacks to more than the {member.size:,} bytes that it announces")
            yield piece
    if size != member.size or crc != member.crc:
        raise BadImage(f"it is damaged: {size:,} of {member.size:,} bytes, or their checksum is wrong")


def _header_length(header: bytes) -> int:
    if not header.startswith(b"PK\3\4"):
        raise BadImage("its header in the archive is damaged")
    name, extra = LENGTHS.unpack_from(header, HEADER_BYTES - LENGTHS.size)
    return HEADER_BYTES + int(name) + int(extra)


def _inflated(packed: bytes, size: int) -> bytes:
    """Deflated data, never more than the announced size and one byte: a bomb stops there."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise BadImage(f"it does not unpack: {error}") from error
    if len(data) != size:
        raise BadImage(f"it unpacks to {'more' if len(data) > size else 'fewer'} than the {size:,} bytes it announces")
    return data


def _inflated_pieces(inflater: "zlib._Decompress", packed: bytes) -> Iterator[bytes]:
    while packed:
        try:
            piece = inflater.decompress(packed, PIECE)
        except zlib.error as error:
            raise BadImage(f"it does not unpack: {error}") from error
        packed = inflater.unconsumed_tail
        if piece:
            yield piece
