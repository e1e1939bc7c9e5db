"""The table of formats to pack into: how a sample is prepared, the shard writer, and the files beside the shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from phalanx.data.pack.class_folders import FolderShard, NamedFile
from phalanx.data.pack.endings import with_ending_of
from phalanx.data.pack.images import Treatment
from phalanx.data.pack.names import named_by_content, original_ending, unique_stems
from phalanx.data.pack.parquet import CARD, FOLDER, SPLIT_NAMES, NamedImage, ParquetShard, card_text
from phalanx.data.pack.raw import RawShard
from phalanx.data.pack.rec import RecShard
from phalanx.data.pack.tfrecord import LABELS, TfImage, TfRecordShard, labels_text, tf_image
from phalanx.data.pack.wds import WdsShard
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import CLASSES, FileEntry, Form, Manifest


class ShardWriter(Protocol):
    """A shard being written: `add` samples in order, then `finish`, or `abandon`, which deletes it."""

    @property
    def size(self) -> int: ...

    def add(self, number: int, label: Any, data: Any) -> None:
        """Add a sample. Its label is a number; in formats of MULTI_LABEL it may be a LabelRow."""
        ...

    def finish(self) -> list[FileEntry]: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True)
class ShardName:
    """Which shard of a split it is; and of how many, where file names say so."""

    folder: Path
    part: Part
    number: int
    of: int | None

    @property
    def stem(self) -> Path:
        return self.folder / self.called(self.part)

    def called(self, split: str) -> str:
        return f"{split}-{self.number:05d}" + ("" if self.of is None else f"-of-{self.of:05d}")


@dataclass(frozen=True)
class Packing:
    """One format. `prepare` turns a sample into the data that shards take, in several threads at once."""

    prepare: Callable[[Part, int], Any]
    shard: Callable[[ShardName], ShardWriter]
    shard_bytes: int
    says_how_many: bool  # whether file names say how many shards there are


# Formats whose samples may have several labels. In class folders, for example, an image is in one folder.
MULTI_LABEL: tuple[Form, ...] = ("wds", "rec", "raw")
# Raw files are larger: each stays open and mapped while it is used, and a process can have about a thousand open.
SHARD_BYTES: dict[Form, int] = {
    "wds": 256 * 2**20,
    "rec": 256 * 2**20,
    "raw": 2 * 2**30,
    "tfrecord": 256 * 2**20,
    "parquet": 256 * 2**20,
    "folder": 256 * 2**20,
}
SAY_HOW_MANY: tuple[Form, ...] = ("tfrecord", "parquet")


def packing(form: Form, treatment: Treatment, classes: list[str], splits: Mapping[Part, Labelled]) -> Packing:
    shards: dict[Form, Callable[[ShardName], ShardWriter]] = {
        "wds": lambda name: WdsShard(name.stem),
        "rec": lambda name: RecShard(name.stem, classes),
        "raw": lambda name: RawShard(name.stem, treatment.channels),
        "tfrecord": lambda name: TfRecordShard(name.stem, classes),
        "parquet": lambda name: ParquetShard(name.folder / FOLDER / name.called(SPLIT_NAMES[name.part]), classes),
        "folder": lambda name: FolderShard(name.stem, name.part, classes),
    }
    return Packing(_preparing(form, treatment, splits), shards[form], SHARD_BYTES[form], form in SAY_HOW_MANY)


def _preparing(form: Form, treatment: Treatment, splits: Mapping[Part, Labelled]) -> Callable[[Part, int], Any]:
    def encoded(part: Part, index: int) -> bytes:
        return treatment.encoded(splits[part], index)

    if form == "raw":
        return lambda part, index: treatment.pixels(splits[part], index)
    if form in ("tfrecord", "parquet"):
        make = tf_image if form == "tfrecord" else NamedImage

        def with_name(part: Part, index: int) -> TfImage | NamedImage:
            data = encoded(part, index)
            return make(data, named_by_content(splits[part], index, data))

        return with_name
    if form == "folder":
        stems = {part: unique_stems(split) for part, split in splits.items()}

        def file(part: Part, index: int) -> NamedFile:
            data, ending = encoded(part, index), original_ending(splits[part], index)
            return NamedFile(data, with_ending_of(stems[part][index].decode(), ending, data))

        return file
    return encoded


def beside(manifest: Manifest) -> dict[str, str]:
    """The text files of a finished pack, by name."""
    files = {CLASSES: "".join(f"{name}\n" for name in manifest.classes)}
    if manifest.options.form == "tfrecord":
        files[LABELS] = labels_text(manifest.classes)
    if manifest.options.form == "parquet":
        files[CARD] = card_text(manifest)
    return files
