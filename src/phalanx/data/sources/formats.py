"""The table of formats: how each is recognised and opened. New formats are added here."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.custom import is_data_reference
from phalanx.data.sources.archives.archive_format import TAR, ZIP, ArchiveFormat
from phalanx.data.sources.array_files.find_arrays import HDF5, NPY, NPZ, ArrayKind
from phalanx.data.sources.array_files.open_arrays import open_arrays
from phalanx.data.sources.binary import open_binary
from phalanx.data.sources.cifar import find_cifar, has_pickles, open_cifar
from phalanx.data.sources.embedded import open_digits, open_synthetic
from phalanx.data.sources.folders import Storage, look
from phalanx.data.sources.idx import find_idx, open_idx
from phalanx.data.sources.image_folders import open_folder, open_folder_val
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.layouts.lists_beside import LIST_ENDINGS
from phalanx.data.sources.layouts.tree import FolderTree
from phalanx.data.sources.list_folders import is_list, open_lists, open_lists_val, val_in_list
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.raw import is_raw, open_raw, open_raw_val
from phalanx.data.sources.remote.addresses import as_address, is_remote, shown_as_address, url_of
from phalanx.data.sources.remote.find_remote import local_copy
from phalanx.data.sources.remote.storage import open_remote
from phalanx.data.sources.shards.find_files import is_pattern
from phalanx.data.sources.shards.hub import hub_name, is_hub_name, open_hub
from phalanx.data.sources.shards.huggingface import is_huggingface, open_huggingface
from phalanx.data.sources.shards.recordio import is_recordio, open_recordio
from phalanx.data.sources.shards.shard_format import ShardFormat
from phalanx.data.sources.shards.tar import is_tar
from phalanx.data.sources.shards.tfrecord import is_tfrecord, open_tfrecord
from phalanx.data.sources.shards.webdataset import open_webdataset
from phalanx.data.sources.stl10 import find_stl10, open_stl10
from phalanx.data.sources.svhn import is_svhn, open_svhn
from phalanx.errors import UserError, nearest


@dataclass(frozen=True)
class Format:
    """A format of datasets."""

    looks_like: str  # for error messages; empty: used only when the user names the format
    recognises: Callable[[Path], bool]
    train: Callable[[Path, OpenRequest], Labelled]  # the training part, or everything if there is no split
    val: Callable[[Path, OpenRequest], Labelled | None]  # the validation part, if there is one
    has_path: bool = True
    takes_patterns: bool = False  # whether it can be several files: globs and ranges
    val_in_file: Callable[[Path, OpenRequest], Labelled | None] | None = None  # the validation part inside of one file


REMOTE = "remote"
USER_CODE = "python"  # instead of a format: the user's own dataset
HUB = "hf"  # its path is a name: hf://USER/NAME


def refuse_unknown_format(text: str) -> None:
    """Refuse FORMAT:PATH with a format that does not exist. What the path holds is seen where it is."""
    name, colon, _ = text.partition(":")
    if colon and not _is_other(text) and not _path(text).exists() and re.fullmatch(r"\w[\w+-]+", name):
        _refuse_format(name, text)


def _refuse_format(name: str, text: str) -> None:
    if name not in FORMATS:
        raise UserError(
            f"{name!r} is not a format of data",
            why=f"{text!r} is not an existing path, so the part before the colon is read as a format",
            remedy=nearest(name, FORMATS),
        )


def _is_other(text: str) -> bool:
    """Whether it is remote, the user's code, or on the hub."""
    return bool(is_remote(text) or is_data_reference(text) or is_hub_name(text) or is_pattern(text))


def recognise(text: str, remote_options: Mapping[str, Any] | None = None) -> tuple[str, Path]:
    """(format, path) of what the user wrote. What exists is a path, whatever colons are in it.

    Of a reference to the user's own code, the path is the reference. Remote files are fetched, and the path is that of
    their copy; of a remote folder of images it is the address.
    """
    if is_remote(text):
        copy = local_copy(text, remote_options or {})
        return (REMOTE, Path(text)) if copy is None else recognise(str(copy))
    name, _, rest = text.partition(":")
    if name in FORMATS and is_remote(rest):
        copy = local_copy(rest, remote_options or {})
        return (REMOTE, Path(rest)) if copy is None else recognise(f"{name}:{copy}")
    if is_data_reference(text):
        return USER_CODE, Path(text)
    if is_hub_name(text) and not _path(text).exists():
        hub_name(text)  # refuses what is not one
        return HUB, Path(text)
    if text in FORMATS and not FORMATS[text].has_path:
        return text, Path()
    path = _path(text)
    if text and path.exists():
        return _recognised(path), path
    name, colon, rest = text.partition(":")
    if is_pattern(text) and not (colon and name in FORMATS):
        return _recognised(path), path
    if not colon or not re.fullmatch(r"\w[\w+-]+", name):  # one letter is a drive of Windows
        raise _not_there(text)
    _refuse_format(name, text)
    if not FORMATS[name].has_path:
        if rest:
            raise UserError(f"{name} takes no path", why=f"{rest!r} follows it", remedy=f"write {name} alone")
        return name, Path()
    is_there = _path(rest).exists() or (is_pattern(rest) and FORMATS[name].takes_patterns)
    if not rest or not is_there:
        raise _not_there(rest)
    _refuse_special(_path(rest))
    return name, _path(rest)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return Path(text)


def _refuse_special(path: Path) -> None:
    """Refuse a pipe or a device: reading it might never end."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UserError(
            f"{path} is neither a folder nor a file",
            why="it is a pipe, a device or a socket, and those are not read",
            remedy="give a folder or a file with data",
        )


def _recognised(path: Path) -> str:
    _refuse_special(path)
    for name, format in FORMATS.items():
        if format.recognises(path):
            return name
    pickled = " (these are the Python pickles of CIFAR; unpack its binary version)" if has_pickles(path) else ""
    known = "; ".join(f"{name}: {format.looks_like}" for name, format in FORMATS.items() if format.looks_like)
    raise UserError(
        f"{path} holds no data of a known format{pickled}",
        why=f"known formats: {known}",
        remedy="check the path, or name the format: data.source=FORMAT:PATH",
    )


def _not_there(text: str) -> UserError:
    names = [name for name, format in FORMATS.items() if not format.has_path]
    return UserError(
        f"there is no data at {text!r}",
        why=f"it is neither an existing path (seen from {Path.cwd()}) nor one of {', '.join(names)}",
        remedy="check the path" if os.sep in text else f"check the path, or {nearest(text, FORMATS)}",
    )


def _holds_images(path: Path) -> bool:
    if not path.is_dir():
        return False
    found = look(path)
    return bool(found.folders or found.images)


def _only_by_name(path: Path) -> bool:
    return False


def _train_hub(path: Path, request: OpenRequest) -> Labelled:
    source = open_hub(path, "train", request)
    assert source is not None, "a dataset without a training split is refused"
    return source


def _train_huggingface(path: Path, request: OpenRequest) -> Labelled:
    source = open_huggingface(path, "train", request)
    if source is None:
        raise UserError(
            f"{path} holds no training data",
            why="none of its Parquet and Arrow files has the name of a training split",
            remedy="give a folder that save_to_disk wrote, or the folder of one split",
        )
    return source


def _shard_format(looks_like: str, shards: ShardFormat) -> Format:
    return Format(looks_like, shards.recognises, shards.train, shards.val, takes_patterns=True)


def _open_stored(storage: Storage, top: Path, request: OpenRequest, part: Part) -> Labelled | None:
    """A part of the folders in an archive or at a remote location, which are found as on disk."""
    inside = replace(request, storage=storage, tree=FolderTree(storage.look))
    return open_folder(top, inside) if part == "train" else open_folder_val(top, inside)


def _archive_format(looks_like: str, archive: ArchiveFormat) -> Format:
    """An archive of class folders, which are found as on disk."""

    def opened(path: Path, request: OpenRequest, part: Part) -> Labelled | None:
        storage = archive.open(path, salvage=request.config.salvage)
        source = _open_stored(storage, path, request, part)
        return None if source is None else replace(source, containers=(path,), notes=(*storage.notes, *source.notes))

    def train(path: Path, request: OpenRequest) -> Labelled:
        source = opened(path, request, "train")
        assert source is not None
        return source

    def val(path: Path, request: OpenRequest) -> Labelled | None:
        source = opened(path, request, "val")
        beside = archive.val_beside(path) if source is None else None
        if beside is None:
            return source
        return replace(train(beside, request), notes=(f"validation: {beside}, found beside {path.name}",))

    return Format(
        looks_like, archive.recognises, train, val, val_in_file=lambda path, request: opened(path, request, "val")
    )


def _remote_format() -> Format:
    """A remote folder of images, whose class folders are found as on disk."""

    def opened(path: Path, request: OpenRequest, part: Part) -> Labelled | None:
        url, config = url_of(path), request.config
        with shown_as_address(path):
            storage = open_remote(url, config.remote_options, config.cache_gb)
            source = _open_stored(storage, storage.root, request, part)
        if source is None:
            return None
        told = (*storage.notes, *source.notes)
        return replace(
            source,
            description=as_address(source.description, path),
            notes=tuple(as_address(note, path) for note in told),
        )

    def train(path: Path, request: OpenRequest) -> Labelled:
        source = opened(path, request, "train")
        assert source is not None
        return source

    def val(path: Path, request: OpenRequest) -> Labelled | None:
        return opened(path, request, "val")

    return Format("", _only_by_name, train, val, val_in_file=val)


def _array_format(looks_like: str, kind: ArrayKind) -> Format:
    def train(path: Path, request: OpenRequest) -> Labelled:
        source = open_arrays(kind, path, "train", request)
        assert source is not None
        return source

    def val(path: Path, request: OpenRequest) -> Labelled | None:
        return open_arrays(kind, path, "val", request)

    def val_in_file(path: Path, request: OpenRequest) -> Labelled | None:
        return val(path, request) if kind.holds_parts(path) else None

    return Format(looks_like, kind.recognises, train, val, val_in_file=val_in_file)


RECORDIO = ShardFormat("RecordIO", re.compile(r"\.rec$"), is_recordio, open_recordio)
# TF-Slim's files have no ending: train-00000-of-01024.
TFRECORD = ShardFormat(
    "TFRecord", re.compile(r"\.(tfrecords?|tfrec)(\.gz)?($|-\d+-of-\d+)|-\d{5}-of-\d{5}$"), is_tfrecord, open_tfrecord
)
BINARY = ShardFormat("binary", re.compile(r"\.bin$"), lambda start: False, open_binary)
WEBDATASET = ShardFormat("WebDataset", re.compile(r"\.(tar|tar\.gz|tgz)$"), is_tar, open_webdataset)


# In the order in which they are tried: those with exact file names first.
FORMATS: dict[str, Format] = {
    "digits": Format(
        "",
        _only_by_name,
        lambda path, request: open_digits("train", channels=request.channels),
        lambda path, request: open_digits("val", channels=request.channels),
        has_path=False,
    ),
    "synthetic": Format(
        "",
        _only_by_name,
        lambda path, request: open_synthetic("train", request.config.synthetic, channels=request.channels),
        lambda path, request: open_synthetic("val", request.config.synthetic, channels=request.channels),
        has_path=False,
    ),
    "cifar": Format(
        "data_batch_1.bin … test_batch.bin, or train.bin and test.bin",
        lambda path: bool(find_cifar(path)),
        lambda path, request: open_cifar(path, "train", channels=request.channels),
        lambda path, request: open_cifar(path, "val", channels=request.channels),
    ),
    "cifar-coarse": Format(
        "",
        _only_by_name,
        lambda path, request: open_cifar(path, "train", channels=request.channels, kind="coarse"),
        lambda path, request: open_cifar(path, "val", channels=request.channels, kind="coarse"),
    ),
    "stl10": Format(
        "train_X.bin, train_y.bin and so on of STL-10",
        lambda path: find_stl10(path) is not None,
        lambda path, request: open_stl10(path, "train", channels=request.channels),
        lambda path, request: open_stl10(path, "val", channels=request.channels),
    ),
    "svhn": Format(
        "train_32x32.mat and test_32x32.mat of SVHN",
        is_svhn,
        lambda path, request: open_svhn(path, "train", channels=request.channels),
        lambda path, request: open_svhn(path, "val", channels=request.channels),
    ),
    "idx": Format(
        "train-images-idx3-ubyte[.gz] and so on, also with a name before",
        lambda path: find_idx(path) is not None,
        lambda path, request: open_idx(path, "train", channels=request.channels),
        lambda path, request: open_idx(path, "val", channels=request.channels),
    ),
    "raw": Format(
        "a folder that `phalanx data pack --format raw` made",
        is_raw,
        lambda path, request: open_raw(path, channels=request.channels, pool=request.pool),
        lambda path, request: open_raw_val(path, channels=request.channels, pool=request.pool),
    ),
    "huggingface": Format(
        "Hugging Face: Parquet or Arrow files, a folder with them, or one that save_to_disk made",
        is_huggingface,
        _train_huggingface,
        lambda path, request: open_huggingface(path, "val", request),
        takes_patterns=True,
    ),
    HUB: Format(
        "hf://USER/NAME, a dataset of the Hugging Face hub",
        _only_by_name,
        _train_hub,
        lambda path, request: open_hub(path, "val", request),
    ),
    REMOTE: _remote_format(),
    "zip": _archive_format("a .zip with class folders", ZIP),
    "tar": _archive_format("a .tar or .tgz with class folders", TAR),
    "rec": _shard_format("MXNet's .rec files", RECORDIO),
    "tfrecord": _shard_format("TFRecord files (.tfrecord, …-00000-of-00010)", TFRECORD),
    "wds": _shard_format("WebDataset archives (.tar, .tar.gz)", WEBDATASET),
    "list": Format(
        f"a list or table of files and labels ({' '.join(LIST_ENDINGS)})",
        is_list,
        open_lists,
        open_lists_val,
        val_in_file=val_in_list,
    ),
    "bin": _shard_format("binary files of label bytes and pixels (.bin), as CIFAR's under other names", BINARY),
    "npz": _array_format("NumPy's .npz with images and labels (MedMNIST's, Keras's mnist.npz)", NPZ),
    "npy": _array_format("NumPy's .npy: X_train.npy and y_train.npy, or a file for each class", NPY),
    "hdf5": _array_format("HDF5 with images and labels (.h5)", HDF5),
    "folder": Format(
        "class folders, or train/ and val/ with class folders",
        _holds_images,
        open_folder,
        open_folder_val,
    ),
}
