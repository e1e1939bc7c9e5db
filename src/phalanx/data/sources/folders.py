"""Image files in class folders: `train/<class>/*.jpg`, scanned without a stat per file, names stored compactly."""

import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.stamp import Stamp
from phalanx.data.sources.window import read_at
from phalanx.errors import UserError

IMAGE_ENDINGS = (
    *(b".jpg", b".jpeg", b".jpe", b".jfif", b".png", b".webp", b".bmp", b".gif", b".tif", b".tiff"),
    *(b".ppm", b".pgm", b".pbm", b".pnm", b".jp2", b".avif"),
)
IMAGE_SIZE = 224
# Of ImageNet's training images; for grey the averages of the three, as timm does for one channel.
MEAN = {1: (0.449,), 3: (0.485, 0.456, 0.406)}
STD = {1: (0.226,), 3: (0.229, 0.224, 0.225)}


class Names:
    """Many names in one buffer: ImageNet's 1.28 million paths take 45 MB instead of 90."""

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._buffer = bytearray()
        self._ends = array("q", [0])
        for name in names:
            self.append(name)

    def append(self, name: bytes) -> None:
        self._buffer += name
        self._ends.append(len(self._buffer))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._buffer[self._ends[index] : self._ends[index + 1]])


class Storage(ABC):
    """Where files in folders are: on disk, in an archive, or at a remote location."""

    notes: tuple[str, ...] = ()  # for the user

    @abstractmethod
    def look(self, folder: Path, *, until_image: bool = False) -> "Listing":
        """The entries of a folder; with `until_image` the first image is enough."""

    @abstractmethod
    def read(self, path: bytes) -> bytes:
        """A file. Raises OSError or BadImage. Called from several threads at once."""

    @abstractmethod
    def stamp(self, path: bytes) -> str:
        """Another one means that the file has changed."""

    def name(self, path: bytes) -> str:
        """A file's name in messages."""
        return os.fsdecode(path)

    def prepare(self, paths: Sequence[bytes]) -> None:
        """These files will be read soon."""
        return


class Disk(Storage):
    """Files on disk."""

    def look(self, folder: Path, *, until_image: bool = False) -> "Listing":
        return look(folder)

    def read(self, path: bytes) -> bytes:
        # Takes half the time of Path.read_bytes, most of which holds Python's lock.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_at(descriptor, 0, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def stamp(self, path: bytes) -> str:
        stamp = Stamp.of(Path(os.fsdecode(path)))
        return f"{stamp.size} {stamp.mtime_ns}"


DISK: Storage = Disk()


@dataclass(kw_only=True)
class FileSource(EncodedSource):
    """A Source of image files, named relative to `root`. `label_list` is the file that gave the labels, if any."""

    root: Path
    names: Names
    label_list: Path | None = None
    storage: Storage = DISK

    def encoded(self, index: int) -> bytes:
        return self.storage.read(self.path(index))

    def stamp(self, index: int) -> str:
        return self.storage.stamp(self.path(index))

    def prepare(self, indices: Sequence[int]) -> None:
        if self.storage is not DISK:
            self.storage.prepare([self.path(index) for index in indices])

    def path(self, index: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.names[index])  # noqa: PTH118 - names are bytes

    def name(self, index: int) -> str:
        return self.storage.name(os.fsencode(self.root / os.fsdecode(self.names[index])))


@dataclass(frozen=True)
class Suggestion:
    """How photographs are read by default."""

    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


def suggested(what: str, channels: int | None) -> Suggestion:
    """ImageNet's defaults: three channels unless `channels` is given, 224 pixels, its mean and deviation."""
    channels = 3 if channels is None else channels
    if channels not in MEAN:
        raise UserError(
            f"{what} cannot be read with {channels} channels",
            why="image files are read as grey (1) or colour (3)",
            remedy="set data.channels to 1 or 3",
        )
    return Suggestion(channels, IMAGE_SIZE, MEAN[channels], STD[channels])


def file_source(
    what: str,
    root: Path,
    names: Names,
    labels: Labels,
    classes: list[str],
    *,
    channels: int | None,
    pool: Executor | None,
    label_list: Path | None = None,
    notes: tuple[str, ...] = (),
    storage: Storage = DISK,
) -> FileSource:
    """A FileSource with ImageNet's defaults."""
    suggestion = suggested(what, channels)
    return FileSource(
        description=f"{what}, {len(names):,} images in {len(classes):,} classes",
        root=root,
        names=names,
        labels=labels,
        label_list=label_list,
        classes=classes,
        channels=suggestion.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        notes=notes,
        pool=pool,
        storage=storage,
    )


def open_class_folders(
    folder: Path, *, channels: int | None, pool: Executor | None, storage: Storage = DISK
) -> FileSource:
    """Each folder in `folder` is a class, in the order of their names; its images may lie in folders below it."""
    found = storage.look(folder)
    if not found.folders:
        raise UserError(
            f"{folder} holds no class folders",
            why=f"images are expected at {folder}/<class>/<image>; it holds {len(found.images):,} images and no folder",
            remedy="put the images of each class into a folder named after it, or give a list of files: list:FILE",
        )
    names, counts, others = Names(), [], found.others
    for name in found.folders:
        images, ignored = images_below(folder / os.fsdecode(name), storage)
        for image in images:
            names.append(name + b"/" + image)
        counts.append(len(images))
        others += ignored
    _refuse_empty(folder, [name for name, count in zip(found.folders, counts, strict=True) if not count], others)
    return file_source(
        f"class folders in {folder}",
        folder,
        names,
        np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        [os.fsdecode(name) for name in found.folders],
        channels=channels,
        pool=pool,
        notes=_left_out(folder, len(found.images), others),
        storage=storage,
    )


@dataclass
class Listing:
    """The entries of a folder, without hidden ones, in the order of their names."""

    images: list[bytes] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)
    others: int = 0


def look(folder: Path) -> Listing:
    found = Listing()
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                # The listing itself tells files from folders: only a link without an image's ending costs a stat.
                if entry.name.lower().endswith(IMAGE_ENDINGS) and not entry.is_dir(follow_symlinks=False):
                    found.images.append(entry.name)
                elif entry.is_dir():
                    found.folders.append(entry.name)
                else:
                    found.others += 1
    except OSError as error:
        raise UserError(
            f"{folder} cannot be listed",
            why=error.strerror or str(error),
            remedy="check the path, its permissions and its links",
        ) from error
    found.images.sort()
    found.folders.sort()
    return found


def images_below(folder: Path, storage: Storage = DISK) -> tuple[list[bytes], int]:
    """All images of a folder and of the folders in it, relative to it; and how many other files there are."""
    found = storage.look(folder)
    images, others = [*found.images], found.others
    for name in found.folders:
        deeper, more = images_below(folder / os.fsdecode(name), storage)
        images += [name + b"/" + image for image in deeper]
        others += more
    return images, others


def some(names: Sequence[bytes], count: int = 5) -> str:
    """The first few names for a message: `a, b, c … (17 in all)`."""
    shown = ", ".join(os.fsdecode(name) for name in names[:count])
    return shown if len(names) <= count else f"{shown} … ({len(names):,} in all)"


def _refuse_empty(folder: Path, empty: list[bytes], others: int) -> None:
    if empty:
        raise UserError(
            f"{folder} has class folders without images: {some(empty)}",
            why="each folder is a class, and a class without images cannot be learned"
            + (f" ({others:,} files there have no ending of an image)" if others else ""),
            remedy="remove these folders, or check that the data is completely unpacked",
        )


def _left_out(folder: Path, stray: int, others: int) -> tuple[str, ...]:
    notes = []
    if stray:
        notes.append(f"{stray:,} images directly in {folder} belong to no class and are left out")
    if others:
        notes.append(f"{others:,} files in {folder} have no ending of an image and are left out")
    return tuple(notes)
