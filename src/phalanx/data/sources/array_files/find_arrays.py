"""Which array files a path names: one file, a file with its labels in another one beside it, or a folder of them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.data.sources.array_files.choose import Choice, Chosen, choose
from phalanx.data.sources.array_files.entry import ArrayEntry
from phalanx.data.sources.array_files.hdf5 import MAGIC as HDF5_MAGIC
from phalanx.data.sources.array_files.hdf5 import hdf5_entries
from phalanx.data.sources.array_files.naming import ROLES, role_of, split_of, without_split
from phalanx.data.sources.array_files.npy import npy_entries, npz_entries
from phalanx.data.sources.folders import images_below, look
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.unpack import readable_shards, start_of
from phalanx.data.sources.splits import split_folders
from phalanx.errors import UserError


@dataclass(frozen=True)
class ArrayKind:
    """A format of arrays: the endings of its files, how they begin, and the arrays of one."""

    endings: tuple[str, ...]
    magic: bytes
    entries: Callable[[Shard], list[ArrayEntry]]

    def recognises(self, path: Path) -> bool:
        if path.is_dir():
            return bool(self.files(path)) and not _holds_images(path)
        if not path.is_file():
            return False
        return self.has_name(path) or (bool(self.magic) and start_of(path, 8).startswith(self.magic))

    def has_name(self, path: Path) -> bool:
        return path.name.lower().removesuffix(".gz").endswith(self.endings)

    def files(self, folder: Path) -> list[Path]:
        """The files of a folder, or of the folders of splits in it."""
        if found := self._files_in(folder):
            return found
        below = (path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        names = [name for names in split_folders(sorted(below)).values() for name in names]
        return [file for name in names for file in self._files_in(folder / name)]

    def _files_in(self, folder: Path) -> list[Path]:
        if not folder.is_dir():
            return []
        files = (path for path in folder.iterdir() if not path.name.startswith(".") and self.has_name(path))
        return sorted(path for path in files if path.is_file())

    def holds_parts(self, path: Path) -> bool:
        """Whether a path may hold several splits, and not just one."""
        return path.is_dir() or not _lacks_labels(self.entries(readable_shards([path])[0]))


NPZ = ArrayKind((".npz",), b"", npz_entries)
NPY = ArrayKind((".npy",), b"\x93NUMPY", npy_entries)
HDF5 = ArrayKind((".h5", ".hdf5", ".hdf", ".he5"), HDF5_MAGIC, hdf5_entries)


@dataclass(frozen=True)
class FoundArrays:
    """The arrays of training (or all) and of validation."""

    train: Chosen
    val: Chosen | None
    choice: Choice


def find_arrays(kind: ArrayKind, path: Path, image_field: str | None, label_field: str | None) -> FoundArrays:
    """The arrays at a path. Raises UserError, with all that were found, if it is not clear what they are."""
    if path.is_dir():
        return _parts(choose(path, _joined(kind, path, kind.files(path)), image_field, label_field))
    own = kind.entries(readable_shards([path])[0])
    if not own:
        raise UserError(f"{path} holds no arrays", why="it is empty", remedy="check that it is the right file")
    if not _lacks_labels(own) or label_field is not None:
        return _parts(choose(path, own, image_field, label_field))
    stem, files = _stem(path), [file for file in kind.files(path.parent) if _belong_together(file, path)]
    if len(files) == 1:
        raise UserError(
            f"{path} holds images and no labels: {own[0]}",
            why=f"there is no file with their labels beside it, such as {_labels_name(path)}",
            remedy="save images and labels together (np.savez), or as two files beside each other",
        )
    choice = choose(path.parent, _joined(kind, path.parent, files), image_field, label_field)
    split = split_of(stem) or "train"
    if split not in choice.splits or choice.splits[split].images[0].file.path != path:
        raise UserError(
            f"nothing says which file has the labels of {path}",
            why=f"beside it are {', '.join(file.name for file in files[:8] if file != path)}",
            remedy=f"call them {_labels_name(path)}, or save both together (np.savez)",
        )
    if split == "train":
        return _parts(choice)
    return FoundArrays(choice.splits[split], None, choice)


def _parts(choice: Choice) -> FoundArrays:
    splits = choice.splits
    if "train" not in splits:
        return FoundArrays(next(iter(splits.values())), None, choice)
    val = splits.get("val") or splits.get("test")
    unused = list(choice.unused)
    if "val" in splits and "test" in splits:
        unused += [*splits["test"].images, *([splits["test"].labels] if splits["test"].labels else [])]
    return FoundArrays(splits["train"], val, replace(choice, unused=unused))


def _joined(kind: ArrayKind, folder: Path, files: Sequence[Path]) -> list[ArrayEntry]:
    """The arrays of several files; the names of those in different files begin with their files' names."""
    found = []
    for shard in readable_shards(files):
        place = shard.path.parent.relative_to(folder).as_posix().removeprefix(".")
        stem = f"{place}/{_stem(shard.path)}" if place else _stem(shard.path)
        for entry in kind.entries(shard):
            name = f"{place}/{entry.name}" if place else entry.name
            alone = kind is NPY or len(files) == 1
            found.append(replace(entry, name=name if alone else f"{stem}/{entry.name}"))
    return found


def _lacks_labels(entries: Sequence[ArrayEntry]) -> bool:
    """Whether a file holds one array alone, which is not labels: then those are in another file."""
    return len(entries) == 1 and role_of(entries[0].name) != "labels"


def _belong_together(one: Path, other: Path) -> bool:
    """Whether names differ in split and role alone: X_train.npy, y_train.npy, X_test.npy."""
    own, theirs = ([word for word in without_split(_stem(path)) if word not in ROLES] for path in (one, other))
    return own == theirs


def _stem(path: Path) -> str:
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    return name.rpartition(".")[0]


def _labels_name(path: Path) -> str:
    return f"{'y' if 'x' in without_split(_stem(path)) else 'labels'}_{split_of(_stem(path)) or 'train'}{path.suffix}"


def _holds_images(path: Path) -> bool:
    found = look(path)
    return bool(found.images) or any(images_below(path / os.fsdecode(name)).images for name in found.folders)
