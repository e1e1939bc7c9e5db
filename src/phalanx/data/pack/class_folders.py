"""Class folders: train/<class>/<image>.jpg, and a list with the checksum of each image, which keeps their order."""

import hashlib
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from phalanx.atomic import PART, sync
from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.manifest import MANIFEST, FileEntry
from phalanx.data.sources.packed_folders import LIST_ENDING
from phalanx.errors import UserError

MAX_NAME_BYTES = 255
SYNCS_AT_ONCE = 16


@dataclass(frozen=True)
class NamedFile:
    """The content of an image file and its name."""

    data: bytes
    name: str

    def __len__(self) -> int:
        return len(self.data)


class FolderShard:
    """Some images of a split. They count when their list is there, which is written last."""

    def __init__(self, stem: Path, part: Part, classes: list[str]) -> None:
        self._folder, self._part, self._classes = stem.parent, part, classes
        self._list = stem.with_name(stem.name + LIST_ENDING)
        self._lines: list[str] = []
        self._written: list[Path] = []
        self.size = 0

    def add(self, number: int, label: int, data: NamedFile) -> None:
        path = self._folder / self._part / self._classes[label] / data.name
        if not self._written or self._written[-1].parent != path.parent:
            path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{number}{PART}")
        unfinished.write_bytes(data.data)
        unfinished.replace(path)
        self._written.append(path)
        checksum = hashlib.sha256(data.data).hexdigest()
        self._lines.append(f"{checksum}  {path.relative_to(self._folder).as_posix()}\n")
        self.size += len(data.data)

    def finish(self) -> list[FileEntry]:
        with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:  # file systems write what is synced at once together
            list(pool.map(sync, [*self._written, *{path.parent for path in self._written}]))
        listing = ChecksummedFile(self._list)
        try:
            listing.write("".join(self._lines).encode())
            return [listing.finish()]
        except BaseException:
            listing.abandon()
            raise

    def abandon(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)


def refuse_as_folders(classes: list[str]) -> None:
    """Refuse class names that cannot be names of folders."""
    for name in classes:
        reason = _unfit(name)
        if reason:
            raise UserError(
                f"the class {name!r} cannot be a folder",
                why=reason,
                remedy="rename the class, or pack as wds, tfrecord or parquet, which only number the classes",
            )


def _unfit(name: str) -> str:
    if "/" in name or "\0" in name:
        return "a folder's name cannot have a slash"
    if name.startswith("."):
        return "folders whose names begin with a dot are hidden, and readers leave them out"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"it has {len(name.encode()):,} bytes, and names of folders have at most {MAX_NAME_BYTES}"
    return ""


def refuse_alike(folder: Path, classes: list[str]) -> None:
    """Refuse class names that this file system takes for the same. The manifest is in the folder already."""
    if not (folder / MANIFEST.upper()).exists():
        return
    seen = dict[str, str]()
    for name in classes:
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            raise UserError(
                f"the classes {seen[key]!r} and {name!r} would be one folder in {folder}",
                why="upper and lower case are the same on its file system",
                remedy="rename one of them, choose a folder on another disk, or pack as wds, tfrecord or parquet",
            )
        seen[key] = name
