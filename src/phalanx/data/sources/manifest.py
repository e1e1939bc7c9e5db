"""pack.json: the content of a packed folder, how it was made, and whether it is finished."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from phalanx.atomic import write_text_atomically
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError

MANIFEST = "pack.json"
CLASSES = "classes.txt"

Form = Literal["wds", "rec", "raw", "tfrecord", "parquet", "folder"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FileEntry(BaseModel):
    """A finished file: its length, its SHA-256, and a CRC-32 of each MiB (8 hex digits each)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    bytes: int
    sha256: str
    blocks: str


class Options(Strict):
    """The options that decide the bytes of the result. A resumed pack must have the same."""

    form: Form
    resize: int | None = None
    quality: int | None = None
    shards: int | None = None
    split: Literal["all", "train", "val"] = "all"
    channels: int | None = None
    interpolation: str = "bilinear"
    exif_orientation: bool = False


class LeftOut(Strict):
    """A sample of the source that could not be read, by its index."""

    index: int
    name: str
    reason: str


class Shard(Strict):
    """Samples `first` … `end` - 1 of the source, in one file (and its index and list, where the form has them)."""

    first: int
    end: int
    samples: int
    files: list[FileEntry]
    image_bytes: int | None = None  # of the images that `files` only list, in class folders
    left_out: list[LeftOut] = []


class Manifest(Strict):
    version: Literal[1] = 1
    finished: bool = False
    command: str  # that made it, for messages that say how to resume
    options: Options
    source: str
    fingerprints: dict[Part, str]  # of the source: its names, labels, sizes and times
    classes: list[str]
    multi_label: bool = False  # whether a sample may have several labels
    channels: int
    image_size: int
    mean: list[float]
    std: list[float]
    extent: tuple[int, int] | None
    splits: dict[Part, list[Shard]]
    planned: dict[Part, int] = {}  # the number of shards, where file names say how many there are

    def num_samples(self, part: Part) -> int:
        return sum(shard.samples for shard in self.splits[part])

    def files(self) -> list[FileEntry]:
        return [file for shards in self.splits.values() for shard in shards for file in shard.files]

    def num_bytes(self, part: Part) -> int:
        """Of the images with what is stored with them."""
        return sum(sum(file.bytes for file in shard.files) + (shard.image_bytes or 0) for shard in self.splits[part])


def save_manifest(folder: Path, manifest: Manifest) -> None:
    write_text_atomically(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def load_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, finished or not; None where it was not packed."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            f"{file} cannot be read",
            why=f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "),
            remedy="pack the data again, into another folder: this version of Phalanx did not write this file",
        ) from error


def packed(path: Path, *, salvage: bool = False) -> Manifest | None:
    """The manifest of a packed folder, or None. An incomplete folder is refused.

    With `salvage`, files may be damaged: their reader decides how much of them can be used.
    """
    manifest = load_manifest(path)
    if manifest is None:
        return None
    if not manifest.finished:
        raise UserError(
            f"{path} is not complete: packing was interrupted",
            why=f"its {MANIFEST} is not marked as finished",
            remedy=f"run `{manifest.command}` again: it goes on after the finished shards",
        )
    for file in manifest.files():
        length = Stamp.of(path / file.name).size
        if length < 0 or (length != file.bytes and not salvage):
            raise UserError(
                f"{path / file.name} is {'missing' if length < 0 else 'damaged'}",
                why=f"{file.bytes:,} bytes were written" + ("" if length < 0 else f", and it ends at byte {length:,}"),
                remedy=f"remove it if it is there, and run `{manifest.command}` again: only what is missing is packed",
            )
    return manifest
