"""Class folders that `phalanx data pack` made: in the order of their source, which the lists of checksums keep.

A list has a line `checksum  train/class/image.jpg` for each image, as sha256sum writes it.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from phalanx.data.sources.folders import FileSource, Names, file_source, some
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.manifest import Manifest, Shard
from phalanx.data.sources.open_request import OpenRequest
from phalanx.errors import UserError

LIST_ENDING = ".sha256"


def listed_images(folder: Path, shards: Iterable[Shard]) -> Iterator[tuple[str, str]]:
    """(SHA-256, path in the packed folder) of each image."""
    for shard in shards:
        for file in shard.files:
            with (folder / file.name).open(encoding="utf-8", newline="\n") as lines:
                for number, line in enumerate(lines, start=1):
                    checksum, blanks, path = line.rstrip("\n").partition("  ")
                    if not blanks or path.count("/") != 2:
                        raise UserError(
                            f"{folder / file.name} is damaged in line {number}",
                            why=f"it is {line[:80]!r}, and should be a checksum and the path of an image",
                            remedy="pack the data again, into another folder",
                        )
                    yield checksum, path


def open_packed_folders(folder: Path, part: Part, manifest: Manifest, request: OpenRequest) -> FileSource:
    """A split of a packed folder. Missing images are refused; files that the lists do not name are told."""
    names = Names(path.partition("/")[2].encode() for _, path in listed_images(folder, manifest.splits[part]))
    number_of = {name.encode(): number for number, name in enumerate(manifest.classes)}
    labels = np.array([number_of[names[i].partition(b"/")[0]] for i in range(len(names))], dtype=np.int64)
    root = folder / part
    extra = _compared(root, {names[i] for i in range(len(names))}, manifest)
    source = file_source(
        f"class folders in {root}", root, names, labels, manifest.classes, channels=request.channels, pool=request.pool
    )
    if not extra:
        return source
    note = f"{extra:,} files in {root} are not of its pack and are left out; without pack.json they are used"
    return replace(source, notes=(note,))


def _compared(root: Path, wanted: set[bytes], manifest: Manifest) -> int:
    """The number of files in the class folders that are not wanted. Listing folders costs no stat per file."""
    found = set[bytes]()
    for name in {path.partition(b"/")[0] for path in wanted}:
        place = os.fsencode(root) + b"/" + name
        if os.path.isdir(place):  # noqa: PTH112 - names are bytes
            found.update(name + b"/" + file for file in os.listdir(place) if not file.startswith(b"."))  # noqa: PTH208
    if missing := sorted(wanted - found):
        raise UserError(
            f"{len(missing):,} images are missing in {root}: {some(missing)}",
            why=f"{len(wanted):,} were packed",
            remedy=f"run `{manifest.command}` again: only what is missing is packed; or remove pack.json to use the "
            "folders as they are",
        )
    return len(found - wanted)
