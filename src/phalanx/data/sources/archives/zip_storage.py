"""A zip file as a folder: its members are listed by its directory and read where they are."""

import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.archives.name_tree import NameTree, tidy
from phalanx.data.sources.archives.zip_directory import ENCRYPTED, ZipMember, zip_members
from phalanx.data.sources.archives.zip_reading import content, unreadable
from phalanx.data.sources.folders import IMAGE_ENDINGS, Listing, Names, Storage
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.shard_source import Files
from phalanx.data.sources.window import Damaged
from phalanx.errors import UserError

COLUMNS = ("header", "packed", "size", "crc", "method", "flags", "name_bytes")


class ZipStorage(Storage):
    """The files of a zip archive, as `folders.Storage`. Names are kept compactly, and found by bisection."""

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        self.root, shard = path, Shard.of(path)
        self._names, self._columns = _read_directory(shard)
        self._files = Files([shard])
        self._tree = NameTree(path, map(self._names.__getitem__, range(len(self._names))))

    def look(self, folder: Path, *, until_image: bool = False) -> Listing:
        return self._tree.look(folder)

    def read(self, path: bytes) -> bytes:
        member = self._member(path)
        if reason := unreadable(member):
            raise BadImage(reason)
        return content(lambda offset, count: self._files.read(0, offset, count), member)

    def stamp(self, path: bytes) -> str:
        member = self._member(path)
        return f"{member.size} {member.crc:08x}"

    def _member(self, path: bytes) -> ZipMember:
        name = path.removeprefix(os.fsencode(self.root)).lstrip(b"/")
        number = bisect_left(self._names, name)
        if number == len(self._names) or self._names[number] != name:
            raise FileNotFoundError(2, "there is no such file in the archive", os.fsdecode(path))
        return ZipMember(os.fsdecode(name), *(column[number] for column in self._columns))


def _read_directory(shard: Shard) -> tuple[Names, Sequence["array[int]"]]:
    """(names in order, the numbers of each member). Of members with the same name, the last one counts."""
    try:
        with shard.path.open("rb", buffering=0) as file:
            members = {tidy(member.name): member for member in zip_members(file.fileno(), shard.stamp.size)}
    except Damaged as damage:
        raise UserError(
            f"{shard.path} is damaged at offset {damage.offset:,}",
            why=damage.why,
            remedy="copy or download the file again",
        ) from damage
    _refuse_encrypted(shard.path, members)
    order = sorted(members)
    columns = [array("Q", (getattr(members[name], column) for name in order)) for column in COLUMNS]
    return Names(order), columns


def _refuse_encrypted(path: Path, members: dict[bytes, ZipMember]) -> None:
    locked = [
        name for name, member in members.items() if member.flags & ENCRYPTED and name.lower().endswith(IMAGE_ENDINGS)
    ]
    if locked:
        raise UserError(
            f"{path} is encrypted: {len(locked):,} of its {len(members):,} files, first {os.fsdecode(locked[0])}",
            why="a zip file is read where it is, and Phalanx asks for no passwords",
            remedy="unpack it, and give the folder",
        )
