"""Image files in class folders: `train/<class>/*.jpg`, scanned without a stat per file, names stored compactly."""

import os
import stat
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.stamp import Stamp
from phalanx.data.sources.window import read_at
from phalanx.errors import UserError

IMAGE_ENDINGS = (
    *(b".jpg", b".jpeg", b".jpe", b".jfif", b".png", b".webp", b".bmp", b".gif", b".tif", b".tiff"),
    *(b".ppm", b".pgm", b".pbm", b".pnm", b".jp2", b".avif"),
)
# Folders that systems make beside the user's: archives of macOS, a Synology's thumbnails, bins, Python's cache.
SYSTEM_FOLDERS = (
    *(b"__macosx", b"@eadir", b"#recycle", b"$recycle.bin", b"system volume information"),
    *(b"lost+found", b"__pycache__"),
)
OUR_FOLDER = b".phalanx"  # indexes of large files
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

    def extend(self, names: Sequence[bytes]) -> None:
        """Append many names, in a fifth of the time."""
        start = len(self._buffer)
        self._buffer += b"".join(names)
        self._ends.extend(accumulate(map(len, names[1:]), initial=start + len(names[0])) if names else ())

    def chosen(self, indices: Iterable[int]) -> "Names":
        return Names(self[index] for index in indices)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[bytes]:
        return (bytes(self._buffer[start:end]) for start, end in pairwise(self._ends))

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
        return look(folder, until_image=until_image)

    def read(self, path: bytes) -> bytes:
        # Takes half the time of Path.read_bytes, most of which holds Python's lock.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BadImage("it is not a regular file")
            return read_at(descriptor, 0, status.st_size)
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


@dataclass(frozen=True)
class ClassFolders:
    """The classes of a dataset, in order, and the folders of each, relative to `root`."""

    root: Path
    folders: Mapping[bytes, Sequence[bytes]]
    level_given: bool = False  # whether the level of the classes is certain: the user says it, or known classes do
    needed: frozenset[bytes] = frozenset()  # classes that stay without images: the other split has some

    @classmethod
    def in_folder(cls, folder: Path, storage: Storage = DISK) -> "ClassFolders":
        """Each folder in `folder` is a class, in the order of their names."""
        return cls(folder, {name: (name,) for name in storage.look(folder).folders})


def open_class_folders(
    where: Path | ClassFolders,
    *,
    channels: int | None,
    pool: Executor | None,
    notes: tuple[str, ...] = (),
    storage: Storage = DISK,
) -> FileSource:
    """Images in class folders, which may lie in folders below them. Folders without images are told and left out."""
    found = where if isinstance(where, ClassFolders) else ClassFolders.in_folder(where, storage)
    root, here = found.root, storage.look(found.root)
    names, counts, empty, below = Names(), dict[bytes, int](), list[bytes](), Below()
    for class_name, folders in found.folders.items():
        before = len(names)
        for folder in folders:
            inside = images_below(root / os.fsdecode(folder), storage)
            if not found.level_given:
                _refuse_nested(root / os.fsdecode(folder), inside)
            for image in inside.images:
                names.append(folder + b"/" + image)
            below.add(inside)
        if len(names) == before and class_name not in found.needed:
            empty.append(class_name)
        else:
            counts[class_name] = len(names) - before
    if not len(names):
        raise _without_images(root, here, empty)
    return file_source(
        f"class folders in {root}",
        root,
        names,
        np.repeat(np.arange(len(counts), dtype=np.int64), list(counts.values())),
        [os.fsdecode(name) for name in counts],
        channels=channels,
        pool=pool,
        notes=(*notes, *_left_out(root, here, empty, below, [name for name, count in counts.items() if not count])),
        storage=storage,
    )


@dataclass
class Listing:
    """The entries of a folder, without hidden files, in the order of their names."""

    images: list[bytes] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)  # that are no images
    skipped: list[bytes] = field(default_factory=list)  # hidden folders, and those that systems make


def look(folder: Path, *, until_image: bool = False) -> Listing:
    """List a folder. With `until_image`, the first image is enough: what comes after it is not listed."""
    found = Listing()
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            for entry in entries:
                # The listing itself tells files from folders: only a link without an image's ending costs a stat.
                if entry.name.startswith(b"."):
                    if entry.is_dir(follow_symlinks=False) and entry.name != OUR_FOLDER:
                        found.skipped.append(entry.name)
                elif entry.name.lower().endswith(IMAGE_ENDINGS) and not entry.is_dir(follow_symlinks=False):
                    found.images.append(entry.name)
                    if until_image:
                        break
                elif entry.is_dir():
                    (found.skipped if entry.name.lower() in SYSTEM_FOLDERS else found.folders).append(entry.name)
                elif entry.is_file() or entry.is_symlink():  # no pipe: whoever looks into it would wait for ever
                    found.files.append(entry.name)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be listed",
            why=error.strerror or str(error),
            remedy="check the path, its permissions and its links",
        ) from error
    for names in (found.images, found.folders, found.files, found.skipped):
        names.sort()
    return found


@dataclass
class Below:
    """All images of a folder and of the folders in it, relative to it; and what else is there."""

    images: list[bytes] = field(default_factory=list)
    direct: int = 0  # images directly in the folder
    folders: list[bytes] = field(default_factory=list)  # in the folder, with images
    others: int = 0  # files that are no images
    skipped: Counter[bytes] = field(default_factory=Counter)  # folders that were not looked into, by name

    def add(self, other: "Below") -> None:
        """Count what else is there."""
        self.others += other.others
        self.skipped += other.skipped


def images_below(folder: Path, storage: Storage = DISK) -> Below:
    found = storage.look(folder)
    below = Below([*found.images], len(found.images), others=len(found.files), skipped=Counter(found.skipped))
    for name in found.folders:
        deeper = images_below(folder / os.fsdecode(name), storage)
        below.folders += [name] if deeper.images else []
        below.images += [name + b"/" + image for image in deeper.images]
        below.add(deeper)
    return below


def some(names: Sequence[bytes], count: int = 5) -> str:
    """The first few names for a message: `a, b, c … (17 in all)`."""
    shown = ", ".join(os.fsdecode(name) for name in names[:count])
    return shown if len(names) <= count else f"{shown} … ({len(names):,} in all)"


def is_nested(num_images: int, num_folders: int) -> bool:
    """Whether a folder is a level of class folders rather than a class: several folders, and hardly images beside."""
    return num_folders > 1 and num_images < num_folders


def _refuse_nested(folder: Path, below: Below) -> None:
    """Refuse a class that holds folders of images: they may be the classes."""
    if is_nested(below.direct, len(below.folders)):
        raise UserError(
            f"it is not clear whether {folder} is a class or holds classes",
            why=f"{below.direct or 'no'} images are directly in it, others in the folders {some(below.folders)}",
            remedy=f"for classes inside of it: --data {folder}; if the folders beside it in {folder.parent} are the "
            f"classes: --data {folder.parent} data.class_level=1",
        )


def _without_images(root: Path, here: Listing, empty: list[bytes]) -> UserError:
    if empty:
        why = f"its folders are without images: {some(empty)}"
    else:
        why = f"images are expected at {root}/<class>/<image>; it holds {len(here.images):,} images and no folder"
    return UserError(
        f"{root} holds no class folders" + (" with images" if empty else ""),
        why=why,
        remedy="put the images of each class into a folder named after it, or give a list of files: list:FILE",
    )


def _left_out(root: Path, here: Listing, empty: list[bytes], below: Below, lacking: list[bytes]) -> tuple[str, ...]:
    """What the user should know of that is in the folders and is not used."""
    notes, skipped = [], Counter(here.skipped) + below.skipped
    if empty:
        notes.append(f"{len(empty):,} folders in {root} are without images and are no classes: {some(empty)}")
    if lacking:
        notes.append(f"{len(lacking):,} classes have images only in the other split: {some(lacking)}")
    if skipped:
        shown = some([name if count == 1 else name + b" (%d times)" % count for name, count in skipped.items()])
        notes.append(f"hidden and system folders in {root} are left out: {shown}")
    if here.images:
        notes.append(f"{len(here.images):,} images directly in {root} belong to no class and are left out")
    if below.others + len(here.files):
        others = below.others + len(here.files)
        notes.append(f"{others:,} files in {root} have no ending of an image and are left out")
    return tuple(notes)
