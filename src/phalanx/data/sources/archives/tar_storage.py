"""A tar archive of class folders as a folder: where its members are is found once, and kept in its index."""

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from phalanx.data.sources.archives.name_tree import NameTree, tidy
from phalanx.data.sources.folders import IMAGE_ENDINGS, Listing, Names, Storage
from phalanx.data.sources.shards.index import Index, IndexBuilder, Label
from phalanx.data.sources.shards.indexing import Reader, Shard, indexed
from phalanx.data.sources.shards.shard_source import Files
from phalanx.data.sources.shards.tar import members
from phalanx.data.sources.shards.tar_headers import FOLDER
from phalanx.data.sources.shards.tar_samples import is_usual, unusual
from phalanx.data.sources.shards.unpack import readable_shards
from phalanx.data.sources.window import Window


@dataclass(frozen=True)
class MemberReader(Reader):
    """All files of a tar archive that are not hidden. The label of each is its name."""

    @property
    def fingerprint(self) -> str:
        return "tar members by name"

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        found = dict[bytes, tuple[int, int]]()
        try:
            for member in members(window):
                name = tidy(member.name.decode("utf-8", "surrogateescape"))
                if member.kind == FOLDER or name.rpartition(b"/")[2].startswith(b"."):
                    continue
                if name.lower().endswith(IMAGE_ENDINGS):
                    if not is_usual(member):
                        raise unusual(window.path, member)
                    found[name] = (member.offset, member.size)  # of two with the same name, the last one counts
        finally:  # also what was found before a damage, which may be salvaged
            for name in sorted(found):
                builder.add(*found[name], Label(None, name.decode("utf-8", "surrogateescape")))

    def image(self, stored: bytes, mark: int) -> bytes:
        return stored


class TarStorage(Storage):
    """The files of a tar archive, as `folders.Storage`. A gzipped one is unpacked into the cache folder first."""

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        self.root = path
        self._shard: Shard = readable_shards([path])[0]
        found = indexed([self._shard], MemberReader(), salvage=salvage)
        self.notes = tuple(found.notes)
        self._index: Index = found.indexes[0]
        names = [os.fsencode(str(label.name)) for label in self._index.table if isinstance(label, Label)]
        self._names = Names(names)
        self._files = Files([self._shard])
        self._tree = NameTree(path, names)

    def look(self, folder: Path, *, until_image: bool = False) -> Listing:
        return self._tree.look(folder)

    def read(self, path: bytes) -> bytes:
        number = self._number(path)
        return self._files.read(0, int(self._index.offsets[number]), int(self._index.lengths[number]))

    def stamp(self, path: bytes) -> str:
        number = self._number(path)
        stamp = self._shard.stamp
        return f"{stamp.size} {stamp.mtime_ns} {self._index.offsets[number]} {self._index.lengths[number]}"

    def _number(self, path: bytes) -> int:
        name = path.removeprefix(os.fsencode(self.root)).lstrip(b"/")
        number = bisect_left(self._names, name)
        if number == len(self._names) or self._names[number] != name:
            raise FileNotFoundError(2, "there is no such file in the archive", os.fsdecode(path))
        return number
