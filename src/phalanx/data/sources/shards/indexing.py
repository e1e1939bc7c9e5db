"""The indexes of a dataset's files: read from the cache, or made once, with a progress bar."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.data.base import Pixels
from phalanx.data.sources.shards.file_cache import can_write_into, path_beside, path_in_cache, process_lock
from phalanx.data.sources.shards.index import Fit, Index, IndexBuilder, read_index
from phalanx.data.sources.stamp import Stamp
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes

ENDING = ".index"
MAX_NOTES = 3  # of the same kind


@dataclass(frozen=True)
class Shard:
    """One file of a dataset: its path, and the file that is read (another one if it had to be unpacked)."""

    path: Path
    stamp: Stamp
    data: Path
    data_stamp: Stamp
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> "Shard":
        stamp = Stamp.of(path)
        return cls(path, stamp, path, stamp)


class Reader(ABC):
    """A format: finds the samples of a file, and the image in the stored bytes of a sample."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The format and the settings that an index depends on."""

    def beside(self, path: Path) -> tuple[Path, ...]:
        """Other files that an index depends on."""
        return ()

    @abstractmethod
    def scan(self, window: Window, builder: IndexBuilder) -> None:
        """Add the samples of a file to the builder. Raises Damaged where it cannot go on."""

    def finish(self, shard: Shard, builder: IndexBuilder) -> Index:
        """The index of a file after the scan."""
        return builder.index()

    def counts_from_one(self, indexes: Sequence[Index]) -> bool:
        """Whether labels count from 1 if none of them is 0."""
        return False

    @abstractmethod
    def image(self, stored: bytes, mark: int) -> bytes | Pixels:
        """The compressed image in the stored bytes of a sample, or its pixels. Raises BadImage if they are damaged."""

    def title(self, number: int, offset: int, mark: int, read: Callable[[int, int], bytes]) -> str:
        """A sample's name, to follow the file's name. `read(offset, count)` reads bytes of the file."""
        return f" #{number} (offset {offset})"


@dataclass
class Indexed:
    """The index of each shard, and notes for the user."""

    indexes: list[Index]
    notes: list[str] = field(default_factory=list)


def indexed(shards: Sequence[Shard], reader: Reader, *, salvage: bool) -> Indexed:
    """The indexes of all shards. With `salvage`, a damaged file is used up to the damage instead of being refused."""
    fits = [_fit(shard, reader, salvage) for shard in shards]
    found = [_cached(shard, fit) for shard, fit in zip(shards, fits, strict=True)]
    not_cached = []
    for home, numbers in _by_home(shards, [number for number, index in enumerate(found) if index is None]).items():
        folder = shards[numbers[0]].path.parent
        with contextlib.nullcontext() if home is None else process_lock(home, f"indexing {folder}"):
            # Of several processes that start together, one makes the indexes, and the others find them here.
            for number in numbers:
                found[number] = _cached(shards[number], fits[number])
            missing = [number for number in numbers if found[number] is None]
            made = _make([shards[number] for number in missing], reader, salvage)
            for number, index in zip(missing, made, strict=True):
                found[number] = index
                if home is None or not _cache(index, shards[number], fits[number]):
                    not_cached.append(
                        f"the index of {shards[number].path} could not be cached: the next start makes it again"
                    )
    indexes = [index for index in found if index is not None]
    of_files = [note for shard in shards for note in shard.notes]
    of_content = [f"{shard.path}: {note}" for shard, index in zip(shards, indexes, strict=True) for note in index.notes]
    return Indexed(indexes, [note for notes in (not_cached, of_files, of_content) for note in _some(notes)])


def _some(notes: list[str]) -> list[str]:
    """The first few notes of a kind."""
    return notes if len(notes) <= MAX_NOTES else [*notes[:MAX_NOTES], f"… and {len(notes) - MAX_NOTES:,} more like it"]


def _by_home(shards: Sequence[Shard], numbers: list[int]) -> dict[Path | None, list[int]]:
    """Shards by the folder for their indexes; None if there is no folder that can be written."""
    home_of = {folder: _home(folder) for folder in {shards[number].path.parent for number in numbers}}
    grouped: dict[Path | None, list[int]] = {}
    for number in numbers:
        grouped.setdefault(home_of[shards[number].path.parent], []).append(number)
    return grouped


def _make(shards: Sequence[Shard], reader: Reader, salvage: bool) -> Iterator[Index]:
    if not shards:
        return
    what = f"indexing {shards[0].path.name if len(shards) == 1 else f'{len(shards):,} files'}"
    with megabytes(Console(stderr=True), what, sum(shard.data_stamp.size for shard in shards)) as advance:
        for shard in shards:
            yield _made(shard, reader, salvage, advance)


def _fit(shard: Shard, reader: Reader, salvage: bool) -> Fit:
    fingerprint = reader.fingerprint + (" salvaged" if salvage else "")
    # The file that is read comes first: its size bounds the offsets in the index.
    beside = (Stamp.of(path) for path in reader.beside(shard.path))
    return Fit(fingerprint, (shard.data_stamp, shard.stamp, *beside))


def _places(path: Path) -> list[Path]:
    """The paths where an index may be."""
    places = [path_beside(path, ENDING)]
    with contextlib.suppress(RuntimeError):  # there is no home folder
        places.append(path_in_cache(path, "index", ENDING))
    return places


def _home(folder: Path) -> Path | None:
    """The folder for new indexes of a folder's files."""
    return next((place.parent for place in _places(folder / "any") if can_write_into(place.parent)), None)


def _cached(shard: Shard, fit: Fit) -> Index | None:
    for place in _places(shard.path):
        try:
            index = read_index(place.read_bytes(), fit)
        except OSError:
            continue
        if index is not None:
            return index
    return None


def _made(shard: Shard, reader: Reader, salvage: bool, advance: Callable[[int], None]) -> Index:
    builder = IndexBuilder()
    with shard.data.open("rb", buffering=0) as file:
        window = Window(shard.path, file.fileno(), shard.data_stamp.size, advance)
        try:
            reader.scan(window, builder)
        except Damaged as damage:
            if not salvage:
                raise refused(shard.path, damage, len(builder)) from damage
            builder.notes.append(
                f"damaged at offset {damage.offset:,} ({damage.why}): the {len(builder):,} samples before it are used"
            )
        window.finished()
    index = reader.finish(shard, builder)
    if not len(index):
        raise UserError(
            f"{shard.path} holds no samples",
            why="; ".join(index.notes) or "there is no image with a label in it",
            remedy="leave it out, or check that it is the right file",
        )
    return index


def refused(path: Path, damage: Damaged, num_good: int) -> UserError:
    return UserError(
        f"{path} is damaged at offset {damage.offset:,}",
        why=f"{damage.why}; {num_good:,} samples before it are good",
        remedy="copy or download the file again; or use the samples before the damage with data.salvage=true",
    )


def _cache(index: Index, shard: Shard, fit: Fit) -> bool:
    data = index.to_bytes(fit)
    for place in _places(shard.path):
        try:
            if can_write_into(place.parent):
                with write_atomically(place) as file:
                    file.write(data)
                return True
        except OSError:  # a full disk; a name that is too long with its ending
            continue
    return False
