"""Archives of class folders: how they are recognised, and opened as a folder."""

import os
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.data.sources.archives.tar_storage import TarStorage
from phalanx.data.sources.archives.zip_storage import ZipStorage
from phalanx.data.sources.folders import IMAGE_ENDINGS, Storage
from phalanx.data.sources.layouts.level import find_level
from phalanx.data.sources.layouts.tree import FolderTree
from phalanx.data.sources.splits import WORDS
from phalanx.errors import UserError

MEMBERS_TRIED = 200  # of a tar archive, to tell class folders from WebDataset
LABEL_ENDINGS = (".cls", ".json", ".txt", ".label", ".index")
_TRAIN = re.compile(r"training|train", re.IGNORECASE)
TAR_NAMES = (".tar", ".tar.gz", ".tgz")


class Opener(Protocol):
    """Opens an archive; with `salvage` a damaged one up to the damage, if it can be."""

    def __call__(self, path: Path, *, salvage: bool = False) -> Storage: ...


@dataclass(frozen=True)
class ArchiveFormat:
    """A kind of archives."""

    recognises: Callable[[Path], bool]
    open: Opener

    def val_beside(self, path: Path) -> Path | None:
        """The archive of validation images beside one of training images: val.zip of train.zip."""
        if not _TRAIN.search(path.name):
            return None
        beside = {other.name.lower(): other for other in path.parent.iterdir() if other.is_file()}
        names = [
            _TRAIN.sub(word, path.name).lower() for split in ("val", "test") for word in WORDS if WORDS[word] == split
        ]
        return next((beside[name] for name in names if name in beside and self._has_classes(beside[name])), None)

    def _has_classes(self, path: Path) -> bool:
        """Whether there are class folders: test images of a competition are without."""
        try:
            return len(find_level(FolderTree(self.open(path).look), path).names) > 1
        except UserError:
            return False


def is_zip_file(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file()


def is_tar_of_folders(path: Path) -> bool:
    """Whether a tar archive holds images in folders, and nothing that can be a label of WebDataset."""
    if not path.name.lower().endswith(TAR_NAMES) or not path.is_file():
        return False
    images, labels = set[str](), set[str]()
    try:
        with tarfile.open(path) as tar:
            for _ in range(MEMBERS_TRIED):
                member = tar.next()
                if member is None:
                    break
                folder, slash, base = member.name.removeprefix("./").rpartition("/")
                key = folder + slash + base.partition(".")[0]
                if not member.isfile() or base.startswith("."):
                    continue
                if os.fsencode(base).lower().endswith(IMAGE_ENDINGS):
                    images.add(key)
                elif base.lower().endswith(LABEL_ENDINGS):
                    labels.add(key)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        pass  # the reader says what is wrong, and where
    return bool(images) and all("/" in key for key in images) and not images & labels


ZIP = ArchiveFormat(is_zip_file, ZipStorage)
TAR = ArchiveFormat(is_tar_of_folders, TarStorage)
