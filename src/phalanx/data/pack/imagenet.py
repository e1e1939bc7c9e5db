"""ImageNet (ILSVRC 2012) as it is published: a tar of a tar per class, a tar of validation images, and the devkit.

Images are read at their offsets in the archives; nothing is unpacked. Classes are the WordNet ids in their order, and
images are in the order of their names, so labels and samples are those of class folders made from the same archives.
"""

import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from phalanx.data.sources.folders import suggested
from phalanx.data.sources.labelled import Labels, Part
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.shard_source import Files, ShardSource
from phalanx.data.sources.shards.tar import ZEROS, Member, member_at, members
from phalanx.data.sources.shards.tar_headers import BLOCK, FILES
from phalanx.data.sources.shards.webdataset import TarReader
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError

CLASS_ARCHIVE = re.compile(rb"(?:.*/)?(n\d{8})\.tar")
VAL_IMAGE = re.compile(rb"(?:.*/)?ILSVRC2012_val_(\d{8})\.JPEG")
GROUND_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
META = "data/meta.mat"
LARGEST_META = 1 << 26
OFFICIAL = "image-net.org, after signing in"

T = TypeVar("T")


Places = npt.NDArray[np.int64]  # (n, 3): offset, length, and how many blocks of headers come before; a million in 24 MB


def open_imagenet(train: Path, val: Path, devkit: Path, advance: Callable[[int], None]) -> dict[Part, ShardSource]:
    """Both splits. `advance` is called with the bytes of the image archives that have been scanned."""
    wnid_of, truth = read_devkit(devkit)
    classes = sorted(wnid_of.values())
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    by_class = _walked(train, advance, _by_class)
    _refuse_other_classes(train, set(by_class), set(classes))
    by_number = _walked(val, advance, _by_number)
    _refuse_other_images(val, sorted(by_number), len(truth))
    train_labels = np.repeat(np.arange(len(classes)), [len(by_class[wnid]) for wnid in classes])
    val_labels = np.array([label_of[wnid_of[number]] for number in truth])
    return {
        "train": _source(train, np.concatenate([by_class[wnid] for wnid in classes]), train_labels, classes),
        "val": _source(val, _places([by_number[line + 1] for line in range(len(truth))]), val_labels, classes),
    }


def read_devkit(path: Path) -> tuple[dict[int, str], list[int]]:
    """(WordNet id of each class number, class number of each validation image)."""
    meta, truth = _devkit_files(path)
    wnid_of = _classes(path, meta)
    numbers = [int(word) for word in truth.split() if word.isdigit()]
    unknown = sorted(set(numbers) - set(wnid_of))
    if not numbers or unknown:
        raise UserError(
            f"{path} contradicts itself",
            why=f"{GROUND_TRUTH} "
            + (f"names the class {unknown[0]}, which {META} does not have" if numbers else "is empty"),
            remedy=f"download ILSVRC2012_devkit_t12.tar.gz again ({OFFICIAL})",
        )
    return wnid_of, numbers


def _devkit_files(path: Path) -> tuple[bytes, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                wanted = next((name for name in (META, GROUND_TRUTH) if member.name.endswith(name)), None)
                file = archive.extractfile(member) if wanted and member.size <= LARGEST_META else None
                if wanted and file:
                    found[wanted] = file.read()
        return found[META], found[GROUND_TRUTH]
    except KeyError as error:
        why = f"it does not hold {error.args[0]}"
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        why = f"it does not unpack: {error}"
    raise UserError(
        f"{path} is not the development kit of ImageNet",
        why=why,
        remedy=f"give ILSVRC2012_devkit_t12.tar.gz ({OFFICIAL})",
    )


def _classes(path: Path, meta: bytes) -> dict[int, str]:
    """Class number → WordNet id, of the synsets that have images: those without others below them."""
    from scipy.io import loadmat

    try:
        synsets: Any = loadmat(BytesIO(meta), squeeze_me=True)["synsets"]
        leaves = [one for one in np.atleast_1d(synsets) if int(one["num_children"]) == 0]
        return {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in leaves}
    except Exception as error:  # a damaged file raises all kinds of exceptions in scipy
        raise UserError(
            f"{META} in {path} cannot be read",
            why=f"{type(error).__name__}: {error}",
            remedy=f"download ILSVRC2012_devkit_t12.tar.gz again ({OFFICIAL})",
        ) from error


def _walked(path: Path, advance: Callable[[int], None], found: Callable[[Window], T]) -> T:
    """The result of `found` over the headers of an archive."""
    try:
        with path.open("rb", buffering=0) as file:
            window = Window(path, file.fileno(), path.stat().st_size, advance)
            result = found(window)
            window.finished()
            return result
    except Damaged as damage:
        raise UserError(
            f"{path} is damaged at offset {damage.offset:,}",
            why=damage.why,
            remedy=f"download it again ({OFFICIAL}); it is published with its MD5",
        ) from damage


def _by_class(window: Window) -> dict[str, Places]:
    """The images of each class, in the order of their names."""
    return {
        match[1].decode(): _places(sorted(_inner(window, member), key=lambda image: image.name))
        for member in members(window)
        if member.kind in FILES and (match := CLASS_ARCHIVE.fullmatch(member.name))
    }


def _inner(window: Window, archive: Member) -> Iterator[Member]:
    """The files of an archive within the archive."""
    offset, end = archive.offset, archive.offset + archive.size
    while offset < end and window.bytes_at(offset, BLOCK, "a member's header") != ZEROS:
        member = member_at(window.bytes_at, offset)
        if member.offset + member.size > end:
            raise Damaged(offset, f"{member.name.decode(errors='replace')} is longer than the class that it is in")
        if member.kind in FILES:
            yield member
        offset = member.end


def _by_number(window: Window) -> dict[int, Member]:
    """The validation images by their number, which is their line in the ground truth."""
    matches = ((VAL_IMAGE.fullmatch(member.name), member) for member in members(window) if member.kind in FILES)
    return {int(match[1]): member for match, member in matches if match}


def _refuse_other_classes(train: Path, found: set[str], wanted: set[str]) -> None:
    if found == wanted:
        return
    missing, strange = sorted(wanted - found), sorted(found - wanted)
    raise UserError(
        f"{train} does not hold the classes of the development kit",
        why=f"{len(missing):,} of {len(wanted):,} are missing ({', '.join(missing[:3])} …)"
        if missing
        else f"{len(strange):,} are unknown there: {', '.join(strange[:3])} …",
        remedy=f"give ILSVRC2012_img_train.tar, a tar of a tar per class ({OFFICIAL})",
    )


def _refuse_other_images(val: Path, numbers: list[int], wanted: int) -> None:
    if numbers == list(range(1, wanted + 1)):
        return
    raise UserError(
        f"{val} does not hold the validation images of the development kit",
        why=f"there are {len(numbers):,} images named ILSVRC2012_val_….JPEG, and {wanted:,} labels",
        remedy=f"give ILSVRC2012_img_val.tar ({OFFICIAL})",
    )


def _places(images: list[Member]) -> Places:
    rows = [(image.offset, image.size, (image.offset - image.start) // BLOCK) for image in images]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _source(path: Path, places: Places, labels: Labels, classes: list[str]) -> ShardSource:
    what = f"ImageNet's {path.name}"
    suggestion = suggested(what, None)
    shards = [Shard.of(path)]
    return ShardSource(
        description=f"{what}, {len(places):,} images in {len(classes):,} classes",
        classes=classes,
        labels=labels,
        channels=suggestion.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        pool=None,
        reader=TarReader(None, None, None),
        shards=shards,
        files=Files(shards),
        starts=[0],
        offsets=places[:, 0].astype(np.uint64),
        lengths=places[:, 1].astype(np.uint32),
        marks=places[:, 2].astype(np.uint16),
    )
