"""The folders below a path, by what they hold: images, or folders with images. Each is listed at most once."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from phalanx.data.sources.folders import Listing, is_nested, look


class Lister(Protocol):
    """Lists a folder: on disk `folders.look`. With `until_image` it may stop at the first image."""

    def __call__(self, folder: Path, *, until_image: bool = False) -> Listing: ...


@dataclass(frozen=True)
class Branch:
    """A folder of a level, and where its images begin: folders that hold nothing but one folder are passed."""

    name: bytes
    end: Path
    inside: tuple[bytes, ...]  # folders with images in `end`, if it is a level of folders; none where it holds images
    first_inside: tuple[bytes, ...]  # folders with images directly in the folder itself, where no images are

    @property
    def is_level(self) -> bool:
        """Whether it holds folders of images, and not images."""
        return bool(self.inside)

    @property
    def text(self) -> str:
        return os.fsdecode(self.name)


@dataclass
class FolderTree:
    """Listings of folders, kept while a layout is searched for."""

    lister: Lister = look
    _whole: dict[Path, Listing] = field(default_factory=dict)
    _started: dict[Path, Listing] = field(default_factory=dict)
    _holding: dict[Path, bool] = field(default_factory=dict)

    def look(self, folder: Path) -> Listing:
        if folder not in self._whole:
            self._whole[folder] = self.lister(folder)
        return self._whole[folder]

    def holds(self, folder: Path) -> bool:
        """Whether there are images in a folder or below it."""
        if folder not in self._holding:
            found = self._start(folder)
            deeper = (self.holds(below(folder, name)) for name in found.folders)
            self._holding[folder] = bool(found.images) or any(deeper)
        return self._holding[folder]

    def has_images(self, folder: Path) -> bool:
        """Whether there are images directly in a folder."""
        return bool(self._start(folder).images)

    def holders(self, folder: Path) -> list[bytes]:
        """The folders in a folder that hold images."""
        return [name for name in self.look(folder).folders if self.holds(below(folder, name))]

    def branches(self, folder: Path) -> list[Branch]:
        """The folders in a folder that hold images, each followed to where they begin."""
        return [self.branch(folder, name) for name in self.holders(folder)]

    def branch(self, folder: Path, name: bytes) -> Branch:
        first = end = below(folder, name)
        while not self.has_images(end):
            inside = tuple(self._holders(end))
            if len(inside) != 1:
                return Branch(name, end, inside, tuple(self._holders(first)))
            end = below(end, inside[0])
        return Branch(name, end, (), () if end == first else tuple(self._holders(first)))

    def is_nested(self, folder: Path) -> bool:
        """Whether a folder is a level of class folders rather than a class, from all that is in it."""
        return is_nested(len(self.look(folder).images), len(self.holders(folder)))

    def _start(self, folder: Path) -> Listing:
        """The listing, up to the first image."""
        if folder in self._whole:
            return self._whole[folder]
        if folder not in self._started:
            self._started[folder] = self.lister(folder, until_image=True)
        return self._started[folder]

    def _holders(self, folder: Path) -> list[bytes]:
        """Holders of a folder without images, whose listing has not been cut short."""
        return [name for name in self._start(folder).folders if self.holds(below(folder, name))]


def below(folder: Path, name: bytes) -> Path:
    return folder / os.fsdecode(name)
