"""Checksums of damaged files made right again, so that what comes after them is reached."""

import hashlib
import json
import struct
import zlib

import crc32c

BLOCK = 512


def tar(data: bytes) -> bytes:
    """The checksum of every block that looks like a header."""
    out = bytearray(data)
    for start in range(0, len(out) - BLOCK + 1, BLOCK):
        if out[start + 257 : start + 262] == b"ustar":
            out[start + 148 : start + 156] = b" " * 8
            out[start + 148 : start + 156] = f"{sum(out[start : start + BLOCK]):06o}\0 ".encode()
    return bytes(out)


def tfrecord(data: bytes) -> bytes:
    """The checksums of lengths and of contents, as far as lengths lead."""
    out, place = bytearray(data), 0
    while place + 12 <= len(out):
        (length,) = struct.unpack_from("<Q", out, place)
        struct.pack_into("<I", out, place + 8, _masked(bytes(out[place : place + 8])))
        end = place + 12 + length
        if end + 4 > len(out):
            break
        struct.pack_into("<I", out, end, _masked(bytes(out[place + 12 : end])))
        place = end + 4
    return bytes(out)


def _masked(data: bytes) -> int:
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def png(data: bytes) -> bytes:
    out, place = bytearray(data), 8
    while place + 12 <= len(out):
        (length,) = struct.unpack_from(">I", out, place)
        end = place + 8 + length
        if end + 4 > len(out):
            break
        struct.pack_into(">I", out, end, zlib.crc32(out[place + 4 : end]))
        place = end + 4
    return bytes(out)


def raw(data: bytes) -> bytes:
    """The checksum of the index of a file of raw pixels."""
    trailer = struct.Struct("<8sIIQQI")
    if len(data) < trailer.size:
        return data
    magic, version, channels, count, start, _ = trailer.unpack(data[-trailer.size :])
    crc = zlib.crc32(data[min(start, len(data)) : -trailer.size])
    return data[: -trailer.size] + trailer.pack(magic, version, channels, count, start, crc)


def checkpoint(files: dict[str, bytes], manifest: str = "manifest.json") -> None:
    """A manifest with the lengths and digests of the files as they are now."""
    noted = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
        if name != manifest
    }
    files[manifest] = json.dumps(noted).encode()
