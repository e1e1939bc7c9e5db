"""Folders made of names (members of an archive, objects of a bucket), listed as `look` lists folders on disk."""

import os
from collections.abc import Iterable
from pathlib import Path

from phalanx.data.sources.folders import IMAGE_ENDINGS, SYSTEM_FOLDERS, Listing


class NameTree:
    """The folders of names like `train/cat/1.jpg`. Paths begin at `root`, which is what the user calls the whole."""

    def __init__(self, root: Path, names: Iterable[bytes]) -> None:
        self.root = root
        self._folders: dict[bytes, Listing] = {b"": Listing()}
        for name in names:
            self._add(name)
        for found in self._folders.values():
            for listed in (found.images, found.folders, found.files, found.skipped):
                listed.sort()

    def look(self, folder: Path, *, until_image: bool = False) -> Listing:
        """The entries of a folder, without hidden ones, in the order of their names. It is never cut short."""
        return self._folders.get(self.name_of(folder), Listing())

    def name_of(self, path: Path) -> bytes:
        """The name of a path below the root."""
        return os.fsencode(path.relative_to(self.root).as_posix()).removeprefix(b".")

    def _add(self, name: bytes) -> None:
        folder, _, base = name.rpartition(b"/")
        if base.startswith(b".") or not base:
            return
        listing = self._folders.get(folder)
        if listing is None:
            listing = self._make(folder)
        if listing is None:
            return
        if base.lower().endswith(IMAGE_ENDINGS):
            listing.images.append(base)
        else:
            listing.files.append(base)

    def _make(self, folder: bytes) -> Listing | None:
        """The listing of a new folder, entered into the one above it; None for hidden folders and those of systems."""
        above, _, base = folder.rpartition(b"/")
        parent = self._folders[above] if above in self._folders else self._make(above)
        if parent is None:
            return None
        if base.startswith(b".") or base.lower() in SYSTEM_FOLDERS:
            if base not in parent.skipped:
                parent.skipped.append(base)
            return None
        parent.folders.append(base)
        self._folders[folder] = Listing()
        return self._folders[folder]


def tidy(name: str) -> bytes:
    """A member's name without what does not change it: `./a//b` is a/b."""
    if "//" in name or name.startswith(("/", "./")) or "/./" in name:
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    return os.fsencode(name)
