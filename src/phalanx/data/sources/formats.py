"""The table of formats: how each is recognised and opened. New formats are added here."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.custom import is_data_reference
from phalanx.data.sources.archives.archive_format import TAR, ZIP, ArchiveFormat, below_single_folders
from phalanx.data.sources.array_files.find_arrays import HDF5, NPY, NPZ, ArrayKind
from phalanx.data.sources.array_files.open_arrays import open_arrays
from phalanx.data.sources.cifar import find_cifar, has_pickles, open_cifar
from phalanx.data.sources.embedded import open_digits, open_synthetic
from phalanx.data.sources.folders import Storage, look, open_class_folders
from phalanx.data.sources.idx import find_idx, open_idx
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.lists import open_flat_folder, open_list
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.raw import is_raw, open_raw, open_raw_val
from phalanx.data.sources.remote.addresses import as_address, is_remote, shown_as_address, url_of
from phalanx.data.sources.remote.find_remote import local_copy
from phalanx.data.sources.remote.storage import open_remote
from phalanx.data.sources.shards.find_files import VAL_NAMES, is_pattern
from phalanx.data.sources.shards.huggingface import is_huggingface, open_huggingface
from phalanx.data.sources.shards.recordio import is_recordio, open_recordio
from phalanx.data.sources.shards.shard_format import ShardFormat
from phalanx.data.sources.shards.tar import is_tar
from phalanx.data.sources.shards.tfrecord import is_tfrecord, open_tfrecord
from phalanx.data.sources.shards.webdataset import open_webdataset
from phalanx.errors import UserError, nearest

LIST_ENDINGS = (".txt", ".lst", ".list", ".tsv")


@dataclass(frozen=True)
class Format:
    """A format of datasets."""

    looks_like: str  # for error messages; empty: used only when the user names the format
    recognises: Callable[[Path], bool]
    train: Callable[[Path, OpenRequest], Labelled]  # the training part, or everything if there is no split
    val: Callable[[Path, OpenRequest], Labelled | None]  # the validation part, if there is one
    has_path: bool = True
    takes_patterns: bool = False  # whether it can be several files: globs and ranges
    holds_parts: Callable[[Path], bool] = Path.is_dir  # whether a path may hold several splits, and not just one


REMOTE = "remote"
USER_CODE = "python"  # instead of a format: the user's own dataset


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
    if name not in FORMATS:
        raise UserError(
            f"{name!r} is not a format of data",
            why=f"{text!r} is not an existing path, so the part before the colon is read as a format",
            remedy=nearest(name, FORMATS),
        )
    if not FORMATS[name].has_path:
        if rest:
            raise UserError(f"{name} takes no path", why=f"{rest!r} follows it", remedy=f"write {name} alone")
        return name, Path()
    is_there = _path(rest).exists() or (is_pattern(rest) and FORMATS[name].takes_patterns)
    if not rest or not is_there:
        raise _not_there(rest)
    return name, _path(rest)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return Path(text)


def _recognised(path: Path) -> str:
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


def _train_folder(path: Path, request: OpenRequest) -> Labelled:
    return _images(_parts(path, request.storage)[0], request)


def _val_folder(path: Path, request: OpenRequest) -> Labelled | None:
    val = _parts(path, request.storage)[1]
    if val is None:
        return None
    source = _images(val, request)
    if val.name != "test":
        return source
    return replace(source, notes=(*source.notes, f"validation: {val} (there is no val folder beside it)"))


def _parts(path: Path, storage: Storage) -> tuple[Path, Path | None]:
    """The training and validation folders in a folder; or the folder itself, if there is no split."""
    folders = [os.fsdecode(name) for name in storage.look(path).folders]
    val = next((path / name for name in VAL_NAMES if name in folders), None)
    # A class may be called `train`: then its images are directly in it, and other classes beside it.
    only_parts = bool(folders) and {"train", *VAL_NAMES}.issuperset(folders)
    if only_parts or ("train" in folders and storage.look(path / "train").folders):
        return path / "train", val
    return path, None


def _images(folder: Path, request: OpenRequest) -> Labelled:
    """Class folders; or, if the classes are known, images directly in the folder with a list of their labels."""
    found = request.storage.look(folder)
    if found.folders or not found.images or request.classes is None:
        return open_class_folders(folder, channels=request.channels, pool=request.pool, storage=request.storage)
    labels = request.config.val_labels
    if labels is None:
        raise UserError(
            f"the {len(found.images):,} images of {folder} have no labels",
            why="they are directly in it and not in class folders",
            remedy="give a list of their labels with data.val_labels, or sort them into class folders",
        )
    return open_flat_folder(folder, labels, request.classes, channels=request.channels, pool=request.pool)


def _list(path: Path, request: OpenRequest) -> Labelled:
    return open_list(path, request.classes, channels=request.channels, pool=request.pool)


def _list_beside(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation list beside a training list: val.txt of train.txt, val_list.txt of train_list.txt."""
    if "train" not in path.name:
        return None
    others = (path.with_name(path.name.replace("train", name)) for name in VAL_NAMES)
    val = next((other for other in others if other.is_file()), None)
    if val is None:
        return None
    return replace(_list(val, request), notes=(f"validation: {val}, found beside {path.name}",))


def _only_by_name(path: Path) -> bool:
    return False


def _train_huggingface(path: Path, request: OpenRequest) -> Labelled:
    source = open_huggingface(path, "train", request)
    if source is None:
        raise UserError(
            f"{path} holds no training data",
            why="none of its Arrow files has the name of a training split",
            remedy="give a folder that save_to_disk wrote, or the folder of one split",
        )
    return source


def _shard_format(looks_like: str, shards: ShardFormat) -> Format:
    return Format(looks_like, shards.recognises, shards.train, shards.val, takes_patterns=True)


def _archive_format(looks_like: str, archive: ArchiveFormat) -> Format:
    """An archive of class folders, which are found as on disk."""

    def opened(path: Path, request: OpenRequest, part: Part) -> Labelled | None:
        storage = archive.open(path, salvage=request.config.salvage)
        inside = replace(request, storage=storage)
        open_part = _train_folder if part == "train" else _val_folder
        source = open_part(below_single_folders(storage, path), inside)
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

    return Format(looks_like, archive.recognises, train, val, holds_parts=Path.exists)


def _remote_format() -> Format:
    """A remote folder of images, whose class folders are found as on disk."""

    def opened(path: Path, request: OpenRequest, part: Part) -> Labelled | None:
        url, config = url_of(path), request.config
        with shown_as_address(path):
            storage = open_remote(url, config.remote_options, config.cache_gb)
            open_part = _train_folder if part == "train" else _val_folder
            source = open_part(below_single_folders(storage, storage.root), replace(request, storage=storage))
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

    return Format(
        "",
        _only_by_name,
        train,
        lambda path, request: opened(path, request, "val"),
        holds_parts=lambda path: True,
    )


def _array_format(looks_like: str, kind: ArrayKind) -> Format:
    def train(path: Path, request: OpenRequest) -> Labelled:
        source = open_arrays(kind, path, "train", request)
        assert source is not None
        return source

    def val(path: Path, request: OpenRequest) -> Labelled | None:
        return open_arrays(kind, path, "val", request)

    return Format(looks_like, kind.recognises, train, val, holds_parts=kind.holds_parts)


RECORDIO = ShardFormat("RecordIO", re.compile(r"\.rec$"), is_recordio, open_recordio)
# TF-Slim's files have no ending: train-00000-of-01024.
TFRECORD = ShardFormat(
    "TFRecord", re.compile(r"\.(tfrecords?|tfrec)(\.gz)?($|-\d+-of-\d+)|-\d{5}-of-\d{5}$"), is_tfrecord, open_tfrecord
)
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
    "idx": Format(
        "train-images-idx3-ubyte[.gz] and so on",
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
        "a folder that save_to_disk of Hugging Face datasets made",
        is_huggingface,
        _train_huggingface,
        lambda path, request: open_huggingface(path, "val", request),
    ),
    REMOTE: _remote_format(),
    "zip": _archive_format("a .zip with class folders", ZIP),
    "tar": _archive_format("a .tar or .tgz with class folders", TAR),
    "rec": _shard_format("MXNet's .rec files", RECORDIO),
    "tfrecord": _shard_format("TFRecord files (.tfrecord, …-00000-of-00010)", TFRECORD),
    "wds": _shard_format("WebDataset archives (.tar, .tar.gz)", WEBDATASET),
    "npz": _array_format("NumPy's .npz with images and labels (MedMNIST's, Keras's mnist.npz)", NPZ),
    "npy": _array_format("NumPy's .npy: X_train.npy and y_train.npy, or a file for each class", NPY),
    "hdf5": _array_format("HDF5 with images and labels (.h5)", HDF5),
    "folder": Format(
        "class folders, or train/ and val/ with class folders",
        _holds_images,
        _train_folder,
        _val_folder,
    ),
    "list": Format(
        f"a list of lines `path label` ({' '.join(LIST_ENDINGS)})",
        lambda path: path.is_file() and path.suffix.lower() in LIST_ENDINGS,
        _list,
        _list_beside,
    ),
}
