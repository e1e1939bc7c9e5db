"""The files that a list names: found by listing each folder once, which is far less than a stat per file."""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.data.sources.lists.places import ENDINGS, Place
from phalanx.errors import UserError

_ENDINGS = tuple(os.fsencode(ending) for ending in ENDINGS)


@dataclass
class _Entries:
    """The names in a folder."""

    names: set[bytes]
    unlisted: Path | None = None  # a folder that may not be listed: its files can still be opened
    _lower: dict[bytes, bytes | None] | None = None

    def find(self, name: bytes) -> bytes | None:
        """A name of this folder: as it is written, in another normal form of Unicode, or in another case."""
        if name in self.names or (self.unlisted is not None and (self.unlisted / os.fsdecode(name)).is_file()):
            return name
        if not self.names:
            return None
        for form in ("NFC", "NFD") if not name.isascii() else ():
            other = os.fsencode(unicodedata.normalize(form, os.fsdecode(name)))
            if other in self.names:
                return other
        if self._lower is None:
            self._lower = {}
            for entry in self.names:
                lower = entry.lower()
                self._lower[lower] = None if lower in self._lower else entry  # None: several, so none is meant
        return self._lower.get(name.lower())


@dataclass
class FileFinder:
    """Finds the files of a list, given their place. Two lists of the same files and folders give the same names."""

    place: Place
    other_spelling: int = 0  # files whose names differ in case, ending or form of Unicode
    _folders: dict[bytes, _Entries] = field(default_factory=dict)

    def find(self, cells: Sequence[str]) -> tuple[list[bytes], list[int]]:
        """(paths relative to the root, the positions of those that are no file)."""
        text = "\0".join(cells)
        if self.place.backslashes:
            text = text.replace("\\", "/")
        paths = os.fsencode(text).split(b"\0") if cells else []
        if self.place.cut:
            cut = os.fsencode(self.place.cut)
            paths = [path.removeprefix(cut) for path in paths]
        if self.place.flat:
            paths = [path.rpartition(b"/")[2] for path in paths]
        found, missing = [], []
        head, ending, folders = self._head, self._ending, self._folders
        for position, path in enumerate(paths):
            file = head + path + ending
            slash = file.rfind(b"/") + 1
            entries = folders.get(file[:slash])
            if entries is None or file[slash:] not in entries.names:
                file = self._find_slowly(path)
                if not file:
                    missing.append(position)
                    file = path if path.lower().endswith(_ENDINGS) else path + ending
            found.append(file)
        return found, missing

    def _find_slowly(self, path: bytes) -> bytes:
        """For the first file of a folder, and names that are not exactly as expected; empty if there is no file."""
        found = (self._in(inside, path) for inside in self.place.inside if path)
        files = list(dict.fromkeys(file for file in found if file is not None))
        if len(files) > 1:
            raise UserError(
                f"a list names {os.fsdecode(path)!r}, and there are several such files",
                why=", ".join(os.fsdecode(file) for file in files) + f", seen from {self.place.root}",
                remedy="write the folder in the list, or name the folder that is meant with data.root",
            )
        return files[0] if files else b""

    def _in(self, inside: str, path: bytes) -> bytes | None:
        path = os.path.join(os.fsencode(inside), path)  # noqa: PTH118 - bytes
        slash = path.rfind(b"/") + 1
        entries = self._listed(path[:slash])
        name = path[slash:]
        exact = name + self._ending
        for wanted in dict.fromkeys((exact, name, *(name + ending for ending in _ENDINGS))) if name else ():
            file = entries.find(wanted)
            if file is not None:
                self.other_spelling += file not in (exact, name)
                return path[:slash] + file
        return None

    @property
    def _head(self) -> bytes:
        """What comes before each path. A folder of several is never listed under the name `?/`."""
        inside = self.place.inside
        return b"?/" if len(inside) > 1 else os.fsencode(f"{inside[0]}/") if inside[0] else b""

    @property
    def _ending(self) -> bytes:
        return os.fsencode(self.place.ending)

    def _listed(self, folder: bytes) -> _Entries:
        if folder not in self._folders:
            self._folders[folder] = _entries(self.place.root / os.fsdecode(folder))
        return self._folders[folder]


def _entries(folder: Path) -> _Entries:
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            return _Entries({entry.name for entry in entries})
    except (OSError, ValueError):
        return _Entries(set(), folder if folder.is_dir() else None)
